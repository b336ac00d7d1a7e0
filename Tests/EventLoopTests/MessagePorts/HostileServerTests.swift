// Rules proved here, of a client whose server does not play by the rules, for requests that block, run a loop or suspend a task:
//  - What no port sends ends the connection, with an error that says so, and one call of `onInvalidation`.
//  - Replies that nobody asked for, or asked for twice, are dropped, and what was asked for arrives.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop

@Suite(.bounded) struct HostileServerTests {
    private func ask(
        _ remote: RunLoop.RemoteMessagePort, _ way: TwoProcessTests.Way, _ id: Int32 = 1
    ) async throws -> [UInt8]? {
        switch way {
        case .thread: try await elsewhere { try remote.request(id: id, sendTimeout: patience, replyTimeout: patience) }
        case .loop:
            try await elsewhere { try remote.request(id: id, sendTimeout: patience, replyTimeout: patience, replyMode: "replies") }
        case .task: try await remote.request(id: id, timeout: patience)
        }
    }

    enum Wrong: String, CaseIterable, Sendable {
        case garbage, request, message, otherVersion, tooLong, refusalOfNoKind, badSeal, half, nothing

        var bytes: [UInt8]? {
            switch self {
            case .garbage: Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)
            case .request: rawFrame(2, length: 0, body: [1])
            case .message: rawFrame(1, length: 0, body: [1])
            case .otherVersion: rawFrame(3, version: 2, length: 0, body: [1])
            case .tooLong: rawFrame(3, length: 101)
            case .refusalOfNoKind: rawFrame(5, length: 8, id: 9, body: [UInt8](repeating: 255, count: 8) + [1])
            case .badSeal: rawFrame(3, length: 0, body: [7])
            case .half: rawFrame(3, length: 50, body: [1, 2, 3])
            case .nothing: nil
            }
        }
    }

    @Test(arguments: Wrong.allCases, TwoProcessTests.Way.allCases)
    func `what no port sends ends the connection, once`(wrong: Wrong, way: TwoProcessTests.Way) async throws {
        let server = try RawServer { frame in frame.id == 2 ? nil : wrong.bytes }
        let remote = try RunLoop.RemoteMessagePort(name: server.name, maximumMessageSize: 100)
        let (told, ended) = (Box(0), EventLoopTestSupport.Gate())
        remote.onInvalidation {
            told.increment()
            ended.open()
        }
        // Half a frame is not wrong until the connection ends.
        if wrong == .half { try remote.send(id: 1, timeout: .zero) }
        var error: RunLoop.PortError?
        do { _ = try await ask(remote, way, wrong == .half ? 2 : 1) } catch let found as RunLoop.PortError { error = found }
        switch wrong {
        case .half, .nothing: #expect(error == .becameInvalid)
        default:
            if case .protocolViolation = error {} else { Issue.record("\(String(describing: error))") }
        }
        try await elsewhere { ended.wait() }
        #expect(!remote.isValid)
        #expect(throws: RunLoop.PortError.invalidPort) { try remote.send(id: 1, timeout: .zero) }
        remote.invalidate()
        #expect(told.value == 1)
        try server.end()
    }

    @Test(arguments: TwoProcessTests.Way.allCases)
    func `replies that nobody asked for are dropped, and what was asked for arrives`(way: TwoProcessTests.Way) async throws {
        let server = try RawServer { frame in
            let right = rawFrame(3, length: 1, conversation: frame.conversation, body: [UInt8(frame.id), 1])
            // To a message that wants none, to nobody; and the right one twice.
            let wrong = [0, frame.conversation + 1_000, 1 << 63, .max].flatMap { rawFrame(3, length: 1, conversation: $0, body: [99, 1]) }
            return frame.kind == .message ? wrong : wrong + right + right + wrong
        }
        let remote = try RunLoop.RemoteMessagePort(name: server.name)
        for id in Int32(1)...20 {
            try remote.send(id: id, timeout: patience)
            let reply = try await ask(remote, way, id)
            #expect(reply == [UInt8(id)])
        }
        #expect(remote.isValid)
        remote.invalidate()
        try server.end()
    }

    @Test(arguments: 0..<9, TwoProcessTests.Way.allCases)
    func `a reply that is too large for any limit is refused in words`(limit: Int, way: TwoProcessTests.Way) async throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name, maximumMessageSize: limit) { _, _, _ in [UInt8](repeating: 1, count: 100) }
        let running = RunningLoop { $0.add(port) }
        let remote = try RunLoop.RemoteMessagePort(name: name, maximumMessageSize: limit)
        var error: RunLoop.PortError?
        do { _ = try await ask(remote, way) } catch let found as RunLoop.PortError { error = found }
        #expect(error == .messageTooLarge(100))
        #expect(remote.isValid)
        port.invalidate()
        _ = try await elsewhere { try running.end() }
    }

    @Test func `late replies and false ones do not keep the engine from reading what is still to come`() async throws {
        let server = try RawServer { frame in
            // The first is never answered; the second gets a false reply in front of its own.
            frame.id == 1
                ? []
                : rawFrame(3, length: 0, conversation: 77, body: [1]) + rawFrame(4, length: 0, conversation: frame.conversation, body: [1])
        }
        let remote = try RunLoop.RemoteMessagePort(name: server.name)
        for way in TwoProcessTests.Way.allCases {
            #expect(throws: RunLoop.PortError.replyTimedOut) { try remote.request(id: 1, sendTimeout: patience, replyTimeout: .zero) }
            let reply = try await ask(remote, way, 2)
            #expect(reply == nil)
        }
        remote.invalidate()
        try server.end()
    }
}

#endif
