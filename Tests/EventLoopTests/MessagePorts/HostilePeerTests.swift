// Rules proved here: whatever a process of the same user sends, or does not, costs it its connection at most. Each test has a client that is
// served before, during and after.
//  - Garbage, another version, unknown kinds, lengths that are too long, frames that only a server sends.
//  - Half a frame and then silence; a frame a byte at a time; ten thousand connections; replies that nobody reads.
//  - Descriptors that no frame announced, and frames whose descriptors did not come: closed.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop

/// A connection to a port without the library's manners.
private final class RawClient {
    let descriptor: Int32

    init(_ name: String) throws {
        descriptor = try PortRegistration.find(try PortName(name), timeout: .seconds(300))
    }

    deinit { close(descriptor) }

    /// False when the port does not take any more, or not all.
    @discardableResult
    func send(_ bytes: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)) }
            == bytes.count
    }

    /// Waits for the port to close the connection.
    func isClosedByPort() -> Bool {
        var byte: UInt8 = 0
        while true {  // ends: the port closes, or says something, or nothing for very long
            var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&entry, 1, 300_000) == 0 { return false }
            let count = recv(descriptor, &byte, 1, 0)
            if count > 0 { continue }
            return count == 0 || errno == ECONNRESET
        }
    }
}

private func sendRaw(_ descriptor: Int32, _ bytes: [UInt8], _ passed: Int32) {
    var control = [UInt8](repeating: 0, count: 24)
    control.withUnsafeMutableBytes { raw in
        // struct cmsghdr: a length of eight bytes, level and type of four each; then the descriptor.
        raw.storeBytes(of: 20, toByteOffset: 0, as: Int.self)
        raw.storeBytes(of: SOL_SOCKET, toByteOffset: 8, as: Int32.self)
        raw.storeBytes(of: Int32(SCM_RIGHTS), toByteOffset: 12, as: Int32.self)
        raw.storeBytes(of: passed, toByteOffset: 16, as: Int32.self)
        bytes.withUnsafeBytes { data in
            var part = iovec(iov_base: UnsafeMutableRawPointer(mutating: data.baseAddress), iov_len: data.count)
            withUnsafeMutablePointer(to: &part) { part in
                var message = msghdr()
                message.msg_iov = part
                message.msg_iovlen = 1
                message.msg_control = raw.baseAddress
                message.msg_controllen = raw.count
                _ = sendmsg(descriptor, &message, Int32(MSG_NOSIGNAL))
            }
        }
    }
}

private func frame(_ kind: UInt8 = 2, version: UInt8 = 1, descriptors: UInt8 = 0, length: UInt32, id: Int32 = 1, body: [UInt8] = [])
    -> [UInt8]
{
    var bytes: [UInt8] = [0xE7, version, kind, descriptors]
    withUnsafeBytes(of: length.littleEndian) { bytes += $0 }
    withUnsafeBytes(of: UInt64(1).littleEndian) { bytes += $0 }
    withUnsafeBytes(of: id.littleEndian) { bytes += $0 }
    return bytes + body
}

@Suite struct HostilePeerTests {
    private func withPort(_ body: (String) throws -> Void) throws {
        let served = try ServedPort { _, id, data in id == 2 ? [UInt8](repeating: 0, count: 1 << 20) : data }
        let honest = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try honest.ask(1, "before") == "before")
        try body(served.name)
        #expect(try honest.ask(1, "after") == "after")
        #expect(try RunLoop.RemoteMessagePort(name: served.name).ask(1, "new") == "new")
        try served.end()
    }

    @Test(arguments: [
        ("garbage", Array("GET / HTTP/1.1\r\n\r\n".utf8)),
        ("one byte", [0]),
        ("another version", frame(version: 2, length: 0, body: [1])),
        ("an unknown kind", frame(9, length: 0, body: [1])),
        ("a huge length", frame(length: .max)),
        ("a length that is one too long", frame(length: (16 << 20) + 1)),
        ("a reply", frame(3, length: 0, body: [1])),
        ("an empty reply", frame(4, length: 0, body: [1])),
        ("an empty reply that is none", frame(4, length: 1)),
        ("a bad seal", frame(length: 1, body: [0, 7])),
        ("too many descriptors", frame(descriptors: 65, length: 0, body: [1])),
        ("descriptors that do not come", frame(descriptors: 1, length: 0, body: [1])),
        ("descriptors that do not come with half a frame", frame(descriptors: 1, length: 100)),
    ])
    func `bytes that are no frame cost the connection`(what: String, bytes: [UInt8]) throws {
        try withPort { name in
            let hostile = try RawClient(name)
            hostile.send(bytes)
            #expect(hostile.isClosedByPort(), "\(what)")
        }
    }

    @Test func `half a frame and silence keep nobody else waiting`() throws {
        try withPort { name in
            let silent = try (0..<50).map { _ in try RawClient(name) }
            for (index, client) in silent.enumerated() {
                client.send(Array(frame(length: 1 << 20, body: [1, 2, 3]).prefix(index % 22 + 1)))
            }
            #expect(try RunLoop.RemoteMessagePort(name: name).ask(1, "meanwhile") == "meanwhile")
        }
    }

    @Test func `half frames that come to too much cost those who have stood still longest`() throws {
        let heard = Box(0)
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
            heard.increment()
            return []
        }
        let running = RunningLoop { $0.add(port) }
        // 16 MiB less a byte each: the fifth is more than the port keeps.
        let hostile = try (0..<5).map { _ in try RawClient(name) }
        let most = [UInt8](repeating: 0, count: (16 << 20) - 1)
        for client in hostile {
            client.send(frame(length: 16 << 20))
            var sent = 0
            while sent < most.count {  // ends: the port reads, or has closed
                let count = most[sent...].withUnsafeBytes { Glibc.send(client.descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                if count < 0 { break }
                sent += count
            }
        }
        #expect(hostile[0].isClosedByPort())
        #expect(try RunLoop.RemoteMessagePort(name: name).ask(1) == "")
        // The others have done nothing worse than to be slow.
        hostile[4].send([0, 1])
        var byte: UInt8 = 0
        #expect(recv(hostile[4].descriptor, &byte, 1, 0) == 1 && byte == Frame.mark)
        #expect(heard.value == 2)
        port.invalidate()
        try running.end()
    }

    @Test func `a frame that comes a byte at a time is a frame`() throws {
        try withPort { name in
            let slow = try RawClient(name)
            for byte in frame(length: 3, body: [7, 8, 9, 1]) { slow.send([byte]) }
            var reply = [UInt8](repeating: 0, count: 24)
            #expect(recv(slow.descriptor, &reply, 24, Int32(MSG_WAITALL)) == 24)
            #expect(Array(reply.suffix(4)) == [7, 8, 9, 1])
        }
    }

    @Test func `replies that nobody reads are kept back, and bounded`() throws {
        try withPort { name in
            let deaf = try RawClient(name)
            // Each asks for a mebibyte: the port keeps one reply, and reads no more of this client.
            var sent = 0
            while sent < 100_000, deaf.send(frame(length: 0, id: 2, body: [1])) { sent += 1 }  // ends: the port stops reading
            #expect(sent < 100_000)
            #expect(try RunLoop.RemoteMessagePort(name: name).ask(1, "meanwhile") == "meanwhile")
        }
    }

    @Test func `ten thousand connections drive out their own`() throws {
        try withPort { name in
            let crowd = try PeerProcess("crowd", name, "10000")
            #expect(crowd.line() == "half")
            #expect(try RunLoop.RemoteMessagePort(name: name).ask(1, "meanwhile") == "meanwhile")
            #expect(crowd.line() == "done")
            #expect(try RunLoop.RemoteMessagePort(name: name).ask(1, "with all of them") == "with all of them")
        }
    }

    @Test func `descriptors that no frame announced are closed, with the connection`() throws {
        try withPort { name in
            for bytes in [frame(length: 0, body: [1]), frame(length: 5), [0xE7]] {
                let hostile = try RawClient(name)
                var ends: [Int32] = [-1, -1]
                #expect(closeOnExecPipe(&ends))
                sendRaw(hostile.descriptor, bytes, ends[1])
                if bytes.count == 1 {
                    // One byte of a frame that will never be whole, and the end.
                    close(ends[1])
                    shutdown(hostile.descriptor, Int32(SHUT_RDWR))
                } else {
                    close(ends[1])
                    #expect(hostile.isClosedByPort())
                }
                // At the end of file nobody has the other end of the pipe.
                var byte: UInt8 = 0
                #expect(read(ends[0], &byte, 1) == 0)
                close(ends[0])
            }
        }
    }
}

#endif
