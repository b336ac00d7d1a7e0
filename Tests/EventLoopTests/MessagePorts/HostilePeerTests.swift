// Rules proved here: a hostile process of the same user loses its connection at most, and costs others nothing. In each test an honest
// client is served before, during and after the attack.
//  - Garbage, another version, unknown kinds, lengths that are too long, and frames that only servers send.
//  - Half a frame followed by silence, a frame sent byte by byte, ten thousand connections, and replies that nobody reads.
//  - Descriptors that no frame announces are closed. A frame whose descriptors do not arrive ends the connection.

#if os(Linux)

import CLibevent
import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .tags(.threads)) struct HostilePeerTests {
    private func withPort(_ body: (String) throws -> Void) throws {
        let served = try ServedPort { _, id, data in id == 2 ? [UInt8](repeating: 0, count: 1 << 20) : data }
        let honest = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try honest.ask(1, "before") == "before")
        try body(served.name)
        #expect(try honest.ask(1, "after") == "after")
        #expect(try RunLoop.RemoteMessagePort(name: served.name, timeout: patience).ask(1, "new") == "new")
        try served.end()
    }

    @Test(arguments: [
        ("garbage", Array("GET / HTTP/1.1\r\n\r\n".utf8)),
        ("one byte", [0]),
        ("another version", rawFrame(version: 2, length: 0, body: [1])),
        ("an unknown kind", rawFrame(9, length: 0, body: [1])),
        ("a huge length", rawFrame(length: .max)),
        ("a length that is one too long", rawFrame(length: (16 << 20) + 1)),
        ("a reply", rawFrame(3, length: 0, body: [1])),
        ("an empty reply", rawFrame(4, length: 0, body: [1])),
        ("an empty reply with a body", rawFrame(4, length: 1)),
        ("a bad seal", rawFrame(length: 1, body: [0, 7])),
        ("too many descriptors", rawFrame(descriptors: 65, length: 0, body: [1])),
        ("descriptors that do not arrive", rawFrame(descriptors: 1, length: 0, body: [1])),
        ("descriptors that do not arrive with half a frame", rawFrame(descriptors: 1, length: 100)),
    ])
    func `a client that sends an invalid frame loses its connection`(what: String, bytes: [UInt8]) throws {
        try withPort { name in
            let hostile = try RawClient(name)
            hostile.send(bytes)
            #expect(hostile.isClosedByPort(), "\(what)")
        }
    }

    @Test func `half a frame followed by silence keeps nobody else waiting`() throws {
        try withPort { name in
            let silent = try (0..<50).map { _ in try RawClient(name) }
            for (index, client) in silent.enumerated() {
                client.send(Array(rawFrame(length: 1 << 20, body: [1, 2, 3]).prefix(index % 22 + 1)))
            }
            #expect(try RunLoop.RemoteMessagePort(name: name).ask(1, "meanwhile") == "meanwhile")
        }
    }

    @Test func `memory that one process uses costs no other process its connection`() throws {
        let served = try ServedPort { _, _, data in data }
        // This incomplete frame is small, and stalls for longer than all others.
        let slow = try RawClient(served.name)
        slow.send(rawFrame(length: 3, body: [7]))
        #expect(try RunLoop.RemoteMessagePort(name: served.name).ask(1, "small") == "small")
        // The first process has all the memory that one may have, the second has the rest.
        let hogs = try ["3", "1"].map { count in
            let hog = try PeerProcess("hog", served.name, count)
            #expect(hog.line() == "full")
            return hog
        }
        #expect(try RunLoop.RemoteMessagePort(name: served.name).ask(1, "small") == "small")
        // There is no memory for this one until the others have stalled for too long.
        let large = [UInt8](repeating: 1, count: 16 << 20)
        let honest = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try honest.request(id: 1, data: large, sendTimeout: patience, replyTimeout: patience)?.count == large.count)
        slow.send([8, 9, 1])
        var reply = [UInt8](repeating: 0, count: 24)
        #expect(recv(slow.descriptor, &reply, 24, Int32(MSG_WAITALL)) == 24)
        #expect(Array(reply.suffix(4)) == [7, 8, 9, 1])
        for hog in hogs { #expect(hog.ended() == 0) }
        try served.end()
    }

    @Test(.enabled(if: geteuid() == 0, "only root can act as another user"))
    func `another user's connection is closed before it is read`() async {
        await #expect(processExitsWith: .success) {
            // With these rights anybody can connect, so only the check of the peer's user remains.
            let (name, directory) = (freshName(), portDirectory)
            let handled = Box(0)
            let served = try ServedPort(name) { _, _, data in
                handled.increment()
                return data
            }
            let path = "\(directory)/\(try PortName(name).fileName)"
            #expect(chmod(directory, 0o711) == 0 && chmod(path, 0o666) == 0)
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
            let bytes = rawFrame(length: 0, body: [1])
            let end = inForkedChild {
                if setuid(12_345) != 0 { return 1 }
                let descriptor = socket(AF_UNIX, SocketKind.stream, 0)
                let size = socklen_t(MemoryLayout<sockaddr_un>.size)
                let code = withUnsafePointer(to: &address) {
                    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, size) }
                }
                if code != 0 { return 2 }
                _ = bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                var byte: UInt8 = 0
                return recv(descriptor, &byte, 1, 0) > 0 ? 3 : 0
            }
            #expect(end.status == 0, "\(end)")
            #expect(handled.value == 0)
            #expect(chmod(directory, 0o700) == 0)
            try served.end()
            exit(end.status == 0 && handled.value == 0 ? 0 : 1)
        }
    }

    @Test func `a frame that is sent byte by byte arrives`() throws {
        try withPort { name in
            let slow = try RawClient(name)
            for byte in rawFrame(length: 3, body: [7, 8, 9, 1]) { slow.send([byte]) }
            var reply = [UInt8](repeating: 0, count: 24)
            #expect(recv(slow.descriptor, &reply, 24, Int32(MSG_WAITALL)) == 24)
            #expect(Array(reply.suffix(4)) == [7, 8, 9, 1])
        }
    }

    @Test func `unread replies are bounded`() throws {
        try withPort { name in
            let silent = try RawClient(name)
            // Each request has a reply of one mebibyte. The port holds one reply and stops reading this client.
            var sent = 0
            while sent < 100_000, silent.send(rawFrame(length: 0, id: 2, body: [1])) { sent += 1 }  // ends: the port stops reading
            #expect(sent < 100_000)
            #expect(try RunLoop.RemoteMessagePort(name: name).ask(1, "meanwhile") == "meanwhile")
        }
    }

    @Test func `ten thousand connections of one process evict only each other`() throws {
        try withPort { name in
            // The crowd may keep the port's queue of new connections full for long.
            let crowd = try PeerProcess("crowd", name, "10000")
            #expect(crowd.line() == "half")
            #expect(try RunLoop.RemoteMessagePort(name: name, timeout: patience).ask(1, "meanwhile") == "meanwhile")
            #expect(crowd.line() == "done")
            #expect(try RunLoop.RemoteMessagePort(name: name, timeout: patience).ask(1, "with all of them") == "with all of them")
        }
    }

    @Test func `descriptors that no frame announces are closed, and so is the connection`() throws {
        try withPort { name in
            for bytes in [rawFrame(length: 0, body: [1]), rawFrame(length: 5), [0xE7]] {
                let hostile = try RawClient(name)
                var ends: [Int32] = [-1, -1]
                #expect(closeOnExecPipe(&ends))
                sendRaw(hostile.descriptor, bytes, ends[1])
                if bytes.count == 1 {
                    // The first byte of a frame, and then the end.
                    close(ends[1])
                    shutdown(hostile.descriptor, Int32(SHUT_RDWR))
                } else {
                    close(ends[1])
                    #expect(hostile.isClosedByPort())
                }
                // The end of file shows that no copy of the other end is open.
                var byte: UInt8 = 0
                #expect(read(ends[0], &byte, 1) == 0)
                close(ends[0])
            }
        }
    }
}

#endif
