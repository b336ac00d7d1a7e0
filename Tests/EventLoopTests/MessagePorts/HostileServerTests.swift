// Rules proved here, of a client with a hostile server, for requests that block, run a loop or suspend a task:
//  - Bytes that no port sends end the connection, with a suitable error and one call of `onInvalidation`.
//  - So does a reply to a request that is not sent yet: its caller would close the descriptors that are still to be sent.
//  - Unsolicited and duplicate replies are dropped, and the expected ones arrive.

#if os(Linux)

import CLibevent
import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .tags(.threads)) struct HostileServerTests {
    private func request(
        _ remote: RunLoop.RemoteMessagePort, _ way: TwoProcessTests.Way, _ id: Int32 = 1
    ) async throws -> [UInt8]? {
        switch way {
        case .thread: try await elsewhere { try remote.request(id: id, sendTimeout: patience, replyTimeout: patience) }
        case .loop:
            try await elsewhere { try remote.request(id: id, sendTimeout: patience, replyTimeout: patience, replyMode: "replies") }
        case .task: try await remote.request(id: id, timeout: patience)
        }
    }

    enum Violation: String, CaseIterable, Sendable {
        case garbage, request, message, otherVersion, tooLong, unknownRefusal, badSeal, half, nothing

        var bytes: [UInt8]? {
            switch self {
            case .garbage: Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)
            case .request: rawFrame(2, length: 0, body: [1])
            case .message: rawFrame(1, length: 0, body: [1])
            case .otherVersion: rawFrame(3, version: 2, length: 0, body: [1])
            case .tooLong: rawFrame(3, length: 101)
            case .unknownRefusal: rawFrame(5, length: 8, id: 9, body: [UInt8](repeating: 255, count: 8) + [1])
            case .badSeal: rawFrame(3, length: 0, body: [7])
            case .half: rawFrame(3, length: 50, body: [1, 2, 3])
            case .nothing: nil
            }
        }
    }

    @Test(arguments: Violation.allCases, TwoProcessTests.Way.allCases)
    func `bytes that no port sends end the connection once`(violation: Violation, way: TwoProcessTests.Way) async throws {
        let server = try RawServer { frame in frame.id == 2 ? nil : violation.bytes }
        let remote = try RunLoop.RemoteMessagePort(name: server.name, maximumMessageSize: 100)
        let (notifications, ended) = (Box(0), EventLoopTestSupport.Gate())
        remote.onInvalidation {
            notifications.increment()
            ended.open()
        }
        // Half a frame is no violation until the connection ends.
        if violation == .half { try await remote.send(id: 1, timeout: .zero) }
        var error: RunLoop.PortError?
        do { _ = try await request(remote, way, violation == .half ? 2 : 1) } catch let found as RunLoop.PortError { error = found }
        switch violation {
        case .half, .nothing: #expect(error == .becameInvalid)
        default:
            if case .protocolViolation = error {} else { Issue.record("\(String(describing: error))") }
        }
        try await elsewhere { ended.wait() }
        #expect(!remote.isValid)
        await #expect(throws: RunLoop.PortError.invalidPort) { try await remote.send(id: 1, timeout: .zero) }
        remote.invalidate()
        #expect(notifications.value == 1)
        try server.end()
    }

    @Test(arguments: TwoProcessTests.Way.allCases)
    func `unsolicited replies are dropped, and the expected ones arrive`(way: TwoProcessTests.Way) async throws {
        let server = try RawServer { frame in
            let expected = rawFrame(3, length: 1, conversation: frame.conversation, body: [UInt8(frame.id), 1])
            // Replies to a one-way message and to unknown conversations, and the expected one twice.
            let unsolicited = [0, frame.conversation + 1_000, 1 << 63, .max].flatMap {
                rawFrame(3, length: 1, conversation: $0, body: [99, 1])
            }
            return frame.kind == .message ? unsolicited : unsolicited + expected + expected + unsolicited
        }
        let remote = try RunLoop.RemoteMessagePort(name: server.name)
        for id in Int32(1)...20 {
            try await remote.send(id: id, timeout: patience)
            let reply = try await request(remote, way, id)
            #expect(reply == [UInt8(id)])
        }
        #expect(remote.isValid)
        remote.invalidate()
        try server.end()
    }

    @Test(arguments: 0..<9, TwoProcessTests.Way.allCases)
    func `a reply above any limit is refused with its size`(limit: Int, way: TwoProcessTests.Way) async throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name, maximumMessageSize: limit) { _, _, _ in [UInt8](repeating: 1, count: 100) }
        let running = RunningLoop { $0.add(port) }
        let remote = try RunLoop.RemoteMessagePort(name: name, maximumMessageSize: limit)
        var error: RunLoop.PortError?
        do { _ = try await request(remote, way) } catch let found as RunLoop.PortError { error = found }
        #expect(error == .messageTooLarge(100))
        #expect(remote.isValid)
        port.invalidate()
        _ = try await elsewhere { try running.end() }
    }

    @Test func `a reply to a request that is not sent yet ends the connection, and the request is not sent any more`() throws {
        let (near, far) = connectedSockets()
        defer { close(far) }
        let connection = try RemoteConnection(near, engine: try PortEngine.shared(), maximumLength: 4 << 20)
        // The server reads nothing. A part of the first request fills the connection, so the second waits with its descriptor.
        let (first, second) = (ReplyWaiter(.task), ReplyWaiter(.task))
        let pipe = Pipe()
        try connection.startRequest(first, id: 1, data: [UInt8](repeating: 0, count: 4 << 20), descriptors: [])
        try connection.startRequest(second, id: 2, data: [], descriptors: [pipe.writeEnd])
        let reply = rawFrame(4, length: 0, conversation: second.conversation, body: [1])
        #expect(send(far, reply, reply.count, Int32(MSG_NOSIGNAL)) == reply.count)
        try waitUntil("the second request has a result") { connection.state.withLock { _ in second.result != nil } }
        let (result, isUnsent) = connection.state.withLock { (second.result, !$0.unsent.isEmpty) }
        if case .failure(.protocolViolation)? = result {} else { Issue.record("\(String(describing: result))") }
        #expect(!isUnsent)
    }

    @Test func `late and unsolicited replies do not keep the engine from reading later ones`() async throws {
        let server = try RawServer { frame in
            // The first request gets no reply. The second gets an unsolicited reply before its own.
            frame.id == 1
                ? []
                : rawFrame(3, length: 0, conversation: 77, body: [1]) + rawFrame(4, length: 0, conversation: frame.conversation, body: [1])
        }
        let remote = try RunLoop.RemoteMessagePort(name: server.name)
        for way in TwoProcessTests.Way.allCases {
            #expect(throws: RunLoop.PortError.replyTimedOut) { try remote.request(id: 1, sendTimeout: patience, replyTimeout: .zero) }
            let reply = try await request(remote, way, 2)
            #expect(reply == nil)
        }
        remote.invalidate()
        try server.end()
    }
}

#endif
