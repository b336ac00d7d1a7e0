// Rules proved here (SocketAddress.swift, ListeningSocket.swift): which addresses are valid, and when the files of Unix paths are removed.

import CLibevent
import CPlatform
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let longestPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

#if os(Linux)
private let errorsOfLinux = [ENONET]
#else
private let errorsOfLinux: [Int32] = []
#endif

/// Errors of a connection that accept, read and write report.
private let networkErrors =
    [ECONNABORTED, ECONNRESET, ETIMEDOUT, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, EOPNOTSUPP] + errorsOfLinux

@Suite(.bounded, .tags(.memory)) struct AddressTests {
    @Test(arguments: [
        SocketAddress.ipv4(host: "localhost", port: 1), .ipv4(host: "", port: 1), .ipv4(host: "1.2.3", port: 1),
        .ipv4(host: "::1", port: 1), .ipv4(host: "127.0.0.1\0", port: 1), .ipv6(host: "127.0.0.1", port: 1),
        .ipv6(host: "::1%no-such-interface", port: 1), .ipv6(host: "::1%", port: 1), .ipv6(host: "::g", port: 1),
        .ipv6(host: String(repeating: "1", count: 1000), port: 1), .unix(path: ""), .unix(path: "a\0b"), .unix(path: "\0"),
        .unix(path: "/tmp/" + String(repeating: "x", count: longestPath - 4)),
    ])
    func `an impossible address is refused by both kinds of sources`(address: SocketAddress) {
        let error = RunLoop.SourceError.badAddress(address.description)
        #expect(throws: error) { try RunLoop.SocketSource(listeningOn: address) { _, _, _ in } }
        #expect(throws: error) { try RunLoop.SocketSource(connectingTo: address) { _, _ in } }
    }

    @Test func `the longest path is valid`() throws {
        let folder = SocketFolder()
        let path = folder.path + "/" + String(repeating: "x", count: longestPath - folder.path.utf8.count - 1)
        #expect(path.utf8.count == longestPath)
        let source = try RunLoop.SocketSource(listeningOn: .unix(path: path)) { _, _, _ in }
        #expect(source.localAddress == .unix(path: path) && fileExists(path))
        source.invalidate()
        #expect(!fileExists(path))
    }

    @Test func `addresses are described in the usual notation`() {
        #expect("\(SocketAddress.ipv4(host: "10.0.0.1", port: 80))" == "10.0.0.1:80")
        #expect("\(SocketAddress.ipv6(host: "fe80::1%eth0", port: 80))" == "[fe80::1%eth0]:80")
        #expect("\(SocketAddress.unix(path: "/run/a"))" == "/run/a")
        #expect("\(SocketAddress.unix(path: "\0a"))" == "@a")
    }

    @Test(arguments: 0...255) func `every byte of an IPv4 host is written as inet_ntop writes it`(byte: Int) {
        for host in ["\(byte).0.10.255", "1.\(byte).99.100", "255.9.\(byte).200", "100.101.0.\(byte)"] {
            var native = SocketAddress.ipv4(host: host, port: 5).native
            var text = [CChar](repeating: 1, count: Int(CPLATFORM_HOST_SIZE))
            cplatform_address_host(&native, &text)
            #expect(String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self) == host)
        }
    }

    @Test func `an interface may be given by name or by number`() {
        var name = [CChar](repeating: 0, count: Int(IF_NAMESIZE))
        guard if_indextoname(1, &name) != nil else { return }
        let interface = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        for scope in [interface, "1"] {
            var native = SocketAddress.ipv6(host: "fe80::1%\(scope)", port: 5).native
            var text = [CChar](repeating: 0, count: Int(CPLATFORM_HOST_SIZE))
            cplatform_address_host(&native, &text)
            #expect(String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self) == "fe80::1%\(interface)")
            #expect(cplatform_address_port(&native) == 5)
        }
    }

    @Test func `a path that exists is in use if somebody listens on it, and is replaced otherwise`() throws {
        let folder = SocketFolder()
        func inUse(_ address: SocketAddress) -> RunLoop.SourceError { .system(operation: "bind \(address)", errno: EADDRINUSE) }
        let address = SocketAddress.unix(path: folder.file())
        let stale = SocketAddress.unix(path: folder.file("stale"))
        let source = try RunLoop.SocketSource(listeningOn: address) { _, _, _ in }
        #expect(throws: inUse(address)) { try RunLoop.SocketSource(listeningOn: address) { _, _, _ in } }
        // The refused listener does not remove the file either.
        #expect(fileExists(folder.file()))
        rename(folder.file(), folder.file("stale"))
        source.invalidate()
        try whenFree { try RunLoop.SocketSource(listeningOn: stale) { _, _, _ in } }.invalidate()
        #expect(!fileExists(folder.file("stale")))
    }

    @Test func `a path is removed with its source, whether or not the source is in a loop`() throws {
        let folder = SocketFolder()
        let address = SocketAddress.unix(path: folder.file())
        var source: RunLoop.SocketSource? = try RunLoop.SocketSource(listeningOn: address) { _, _, _ in }
        #expect(fileExists(folder.file()))
        withExtendedLifetime(source) {}
        source = nil
        #expect(!fileExists(folder.file()))
        try onFreshThread { loop in
            loop.add(try RunLoop.SocketSource(listeningOn: address) { _, _, _ in })
            _ = loop.run(for: .zero)
            #expect(fileExists(folder.file()))
        }
        #expect(!fileExists(folder.file()))
    }

    @Test func `a path that now belongs to another socket is left alone`() throws {
        let folder = SocketFolder()
        let address = SocketAddress.unix(path: folder.file())
        let first = try RunLoop.SocketSource(listeningOn: address) { _, _, _ in }
        unlink(folder.file())
        let second = try RunLoop.SocketSource(listeningOn: address) { _, _, _ in }
        first.invalidate()
        #expect(fileExists(folder.file()))
        close(connectedClient(to: address))
        second.invalidate()
        #expect(!fileExists(folder.file()))
    }

    @Test func `a child of fork leaves the path alone`() async {
        await #expect(processExitsWith: .success) {
            let folder = SocketFolder()
            let source = Box<RunLoop.SocketSource?>(
                try RunLoop.SocketSource(listeningOn: .unix(path: folder.file())) { _, _, _ in })
            let end = inForkedChild {
                source.value = nil
                return 0
            }
            #expect(end.status == 0 && fileExists(folder.file()))
            source.value = nil
            #expect(!fileExists(folder.file()))
        }
    }

    @Test(arguments: [UInt32(107), 108, 109, .max - 1, .max])
    func `a path that is too long for an address is refused, whatever its stated length`(length: UInt32) {
        var address = cplatform_address()
        let path = [CChar](repeating: 65, count: 109)
        #expect(cplatform_make_unix(&address, path, length) == (length == 107))
    }

    @Test func `a failure of accept concerns either the connection or the listener`() {
        for code in networkErrors + [EPERM] { #expect(cplatform_accept_failure(code) == CPLATFORM_ACCEPT_LOST) }
        for code in [EMFILE, ENFILE, ENOBUFS, ENOMEM] { #expect(cplatform_accept_failure(code) == CPLATFORM_ACCEPT_EXHAUSTED) }
        for code in [EBADF, EINVAL, ENOTSOCK, EACCES, ECONNREFUSED] {
            #expect(cplatform_accept_failure(code) == CPLATFORM_ACCEPT_BROKEN)
        }
        #expect(cplatform_accept_failure(EAGAIN) == CPLATFORM_ACCEPT_NOTHING)
    }

    @Test func `a failure of a read or a write concerns either the connection or one direction`() {
        for code in networkErrors + [ECONNREFUSED, EACCES] { #expect(cplatform_is_connection_failure(code)) }
        for code in [EPIPE, EAGAIN, ENOBUFS, ENOMEM, EIO, EBADF, EPERM] { #expect(!cplatform_is_connection_failure(code)) }
    }
}
