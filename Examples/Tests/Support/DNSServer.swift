// A DNS server on a run loop: libevent's evdns server for UDP, and a listener with bufferevents for TCP, on one port.
//
// Lifecycle of the C objects: made by `init` and freed by `close`, both on the loop's thread. The server port and the listener own their
// sockets, and a bufferevent its connection.

import CLibevent
public import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// On the loop's thread only.
///
/// | Name | Reply |
/// |---|---|
/// | `nN…` | the address 10.0.x.y for the number N |
/// | `none…` | there is no such name |
/// | `lost…` | none |
/// | `lateN…` | none to the first N queries for this name; then 10.0.0.1 |
/// | `many…` | one hundred addresses: truncated over UDP |
public final class DNSServer {
    public let port: UInt16
    public let counts = Counts()
    private var udp: OpaquePointer?
    private var tcp: OpaquePointer?
    private let base: OpaquePointer
    fileprivate var connections: Set<OpaquePointer> = []

    /// How often each name was asked for, in lower case. Any thread may read them.
    public struct Counts: Sendable {
        public let udp = Box<[String: Int]>([:])
        public let tcp = Box<[String: Int]>([:])
    }

    enum Answer: Equatable {
        case addresses([UInt32])
        case noSuchName
        case silence
    }

    public init(on loop: RunLoop, _ mode: RunLoop.Mode = .default) throws {
        base = loop.withEventBase(forMode: mode) { $0 }
        let sockets = try Self.bindBoth()
        port = sockets.port
        let context = Unmanaged.passUnretained(self).toOpaque()
        udp = evdns_add_server_port_with_base(
            base, sockets.udp, 0,
            { request, context in
                Unmanaged<DNSServer>.fromOpaque(context!).takeUnretainedValue().answer(request!)
            }, context)
        tcp = evconnlistener_new(
            base,
            { _, descriptor, _, _, context in
                Unmanaged<DNSServer>.fromOpaque(context!).takeUnretainedValue().accept(descriptor)
            }, context, UInt32(LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC), 64, sockets.tcp)
        guard udp != nil, tcp != nil else { throw SystemFailure("evdns_add_server_port_with_base, evconnlistener_new") }
    }

    public func close() {
        for connection in connections { bufferevent_free(connection) }
        evconnlistener_free(tcp)
        evdns_close_server_port(udp)
    }

    /// Two sockets with one port number. The kernel chooses it for TCP; another process may have it for UDP.
    private static func bindBoth() throws -> (udp: Int32, tcp: Int32, port: UInt16) {
        for _ in 1...100 {
            let tcp = try bound(streamType, port: 0)
            let port = try localPort(of: tcp)
            if let udp = try? bound(datagramType, port: port) { return (udp, tcp, port) }
            _ = systemClose(tcp)
        }
        throw SystemFailure("no port is free for both TCP and UDP")
    }

    private static func bound(_ type: Int32, port: UInt16) throws -> Int32 {
        let descriptor = socket(AF_INET, type, 0)
        guard descriptor >= 0 else { throw SystemFailure("socket") }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        let code = withLoopback(port: port) { bind(descriptor, $0, $1) }
        guard code == 0 else {
            let failure = SystemFailure("bind")
            _ = systemClose(descriptor)
            throw failure
        }
        return descriptor
    }

    // MARK: Answers

    /// - Parameter count: how often the name was asked for, this time included.
    private func answer(to name: String, count: Int) -> Answer {
        func number(after prefix: String) -> Int { Int(name.dropFirst(prefix.count).prefix { $0.isNumber }) ?? 0 }
        if name.hasPrefix("none") { return .noSuchName }
        if name.hasPrefix("lost") { return .silence }
        if name.hasPrefix("late") { return count > number(after: "late") ? .addresses([0x0a00_0001]) : .silence }
        if name.hasPrefix("many") { return .addresses((1...100).map { 0x0a00_0000 + $0 }) }
        if name.hasPrefix("n") { return .addresses([0x0a00_0000 + UInt32(number(after: "n"))]) }
        return .noSuchName
    }

    private func answer(_ request: UnsafeMutablePointer<evdns_server_request>) {
        guard request.pointee.nquestions > 0, let question = request.pointee.questions[0] else {
            evdns_server_request_drop(request)
            return
        }
        let offset = MemoryLayout<evdns_server_question>.offset(of: \.name)!  // a stored member of a C structure
        let text = UnsafeRawPointer(question).advanced(by: offset).assumingMemoryBound(to: CChar.self)
        let name = String(cString: text).lowercased()
        switch answer(
            to: name,
            count: counts.udp.change {
                $0[name, default: 0] += 1; return $0[name]!
            })
        {
        case .silence: evdns_server_request_drop(request)
        case .noSuchName: evdns_server_request_respond(request, DNS_ERR_NOTEXIST)
        case .addresses(let addresses):
            let isA = question.pointee.type == EVDNS_TYPE_A
            // One call for each address: a call with several makes one record with several addresses, which only evdns understands.
            for address in addresses where isA {
                withUnsafeBytes(of: address.bigEndian) { _ = evdns_server_request_add_a_reply(request, text, 1, $0.baseAddress, 0) }
            }
            evdns_server_request_respond(request, DNS_ERR_NONE)
        }
    }

    // MARK: TCP

    private func accept(_ descriptor: Int32) {
        let connection = bufferevent_socket_new(base, descriptor, Int32(BEV_OPT_CLOSE_ON_FREE.rawValue))!
        connections.insert(connection)
        bufferevent_setcb(
            connection,
            { connection, context in
                Unmanaged<DNSServer>.fromOpaque(context!).takeUnretainedValue().read(connection!)
            }, nil,
            { connection, _, context in
                Unmanaged<DNSServer>.fromOpaque(context!).takeUnretainedValue().connections.remove(connection!)
                bufferevent_free(connection)
            }, Unmanaged.passUnretained(self).toOpaque())
        bufferevent_enable(connection, Int16(EV_READ | EV_WRITE))
    }

    private func read(_ connection: OpaquePointer) {
        let input = bufferevent_get_input(connection)
        while true {  // ends: when no whole message is left
            var length: UInt16 = 0
            guard evbuffer_copyout(input, &length, 2) == 2 else { return }
            let count = Int(UInt16(bigEndian: length))
            guard evbuffer_get_length(input) >= count + 2 else { return }
            var message = [UInt8](repeating: 0, count: count + 2)
            evbuffer_remove(input, &message, message.count)
            if let reply = reply(to: Array(message.dropFirst(2))) {
                let framed = [UInt8(reply.count >> 8), UInt8(reply.count & 255)] + reply
                bufferevent_write(connection, framed, framed.count)
            }
        }
    }

    /// RFC 1035, section 4: a header of twelve bytes, the question, then the answers. Nil to say nothing.
    private func reply(to query: [UInt8]) -> [UInt8]? {
        guard query.count > 16 else { return nil }
        var labels: [String] = []
        var place = 12
        while place < query.count, query[place] > 0 {  // ends: each turn goes on by one label
            let end = place + 1 + Int(query[place])
            guard end < query.count else { return nil }
            labels.append(String(decoding: query[place + 1..<end], as: UTF8.self))
            place = end
        }
        let end = place + 5
        guard end <= query.count else { return nil }
        let name = labels.joined(separator: ".").lowercased()
        let isA = query[place + 2] == UInt8(EVDNS_TYPE_A)
        let count = counts.tcp.change {
            $0[name, default: 0] += 1; return $0[name]!
        }
        var (code, addresses): (UInt8, [UInt32]) = (0, [])
        switch answer(to: name, count: count) {
        case .silence: return nil
        case .noSuchName: code = UInt8(DNS_ERR_NOTEXIST)
        case .addresses(let found): addresses = isA ? found : []
        }
        // A response with recursion; one question.
        var reply = Array(query[0..<2]) + [0x81, 0x80 | code, 0, 1, UInt8(addresses.count >> 8), UInt8(addresses.count & 255), 0, 0, 0, 0]
        reply += query[12..<end]
        for address in addresses {
            // The name is that of the question; type A, class IN, time to live 0, four bytes.
            reply += [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]
            reply += withUnsafeBytes(of: address.bigEndian) { Array($0) }
        }
        return reply
    }
}

private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }

extension LibraryHost where Library == DNSServer {
    /// A server on a thread of its own.
    public static func dnsServer(_ mode: RunLoop.Mode = .default) throws -> LibraryHost<DNSServer> {
        try LibraryHost(mode, make: { try DNSServer(on: $0, mode) }, free: { $0.close() })
    }
}

/// The address that the server gives to `nN…`.
public func address(ofNumber number: Int) -> UInt32 { 0x0a00_0000 + UInt32(number) }
