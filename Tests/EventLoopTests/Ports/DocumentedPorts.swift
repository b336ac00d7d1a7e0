// The code of docs/ports.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopTestSupport
import Testing

// MARK: The check-in (the Guide's Listings 3-12 to 3-15)

/// What the messages of the two threads mean. A port does not interpret the number.
enum Topic {
    static let checkIn: UInt32 = 100, sum: UInt32 = 101, answer: UInt32 = 102, goHome: UInt32 = 103
}

/// Listings 3-12 and 3-13: the thread that wants work done makes a port, and receives the worker's messages there.
final class Office: Sendable {
    let port: RunLoop.Port

    init(on loop: RunLoop, numbers: [UInt8], report: @escaping @Sendable (UInt8) -> Void) {
        port = RunLoop.Port { port, message in
            switch message.id {
            case Topic.checkIn:
                // The worker's own port, which nobody here has seen before.
                try? message.replyPort?.send(RunLoop.PortMessage(id: Topic.sum, components: [.bytes(numbers)], replyPort: port))
            case Topic.answer:
                if case .bytes(let bytes) = message.components.first { report(bytes[0]) }
                try? message.replyPort?.send(RunLoop.PortMessage(id: Topic.goHome))
                loop.stop()
            default: break
            }
        }
        loop.add(port)
    }
}

/// Listings 3-14 and 3-15: the worker makes a port of its own, and its first message is where it can be reached.
func work(for office: RunLoop.Port) {
    let loop = RunLoop.current
    let port = RunLoop.Port { port, message in
        switch message.id {
        case Topic.sum:
            guard case .bytes(let bytes) = message.components.first else { return }
            let answer = RunLoop.PortMessage(id: Topic.answer, components: [.bytes([bytes.reduce(0, &+)])], replyPort: port)
            try? message.replyPort?.send(answer)
        case Topic.goHome: port.invalidate()
        default: break
        }
    }
    loop.add(port)
    // No components: that the message comes, and from whom, is all there is to say.
    try? office.send(RunLoop.PortMessage(id: Topic.checkIn, replyPort: port))
    // The port is all that keeps the run from finishing.
    loop.run()
}

private func checkIn() -> UInt8 {
    let total = Box<UInt8>(0)
    let office = Office(on: RunLoop.current, numbers: [20, 15, 7]) { total.value = $0 }
    let worker = plainThread { work(for: office.port) }
    _ = RunLoop.current.run(for: patience)
    try? worker.join()
    return total.value
}

// MARK: Room

private func offer(_ frame: [UInt8], to port: RunLoop.Port) -> Bool {
    do throws(RunLoop.PortError) {
        try port.send(RunLoop.PortMessage(id: 1, components: [.bytes(frame)]))
        return true
    } catch .sendTimedOut {
        return false  // the receiver is behind: this frame is not worth waiting for
    } catch {
        return false  // the port has ended
    }
}

private func insist(_ record: [UInt8], to port: RunLoop.Port) throws {
    try port.send(RunLoop.PortMessage(id: 2, components: [.bytes(record)]), before: .now + .seconds(60))
}

private func insistInTask(_ record: [UInt8], to port: RunLoop.Port) async throws {
    try await port.send(RunLoop.PortMessage(id: 2, components: [.bytes(record)]), before: .now + .seconds(60))
}

/// Sends all records, as fast as the receiver takes them, and serves other items of its loop meanwhile.
@Sendable private func sendAll(_ records: ArraySlice<[UInt8]>, to port: RunLoop.Port, on loop: RunLoop) {
    for index in records.indices {
        do throws(RunLoop.PortError) {
            try port.send(RunLoop.PortMessage(id: 3, components: [.bytes(records[index])]))
        } catch .sendTimedOut {
            port.whenRoom(on: loop) { sendAll(records[index...], to: port, on: loop) }
            return
        } catch {
            return  // the port has ended
        }
    }
}

// MARK: In a task

private func sum(_ port: RunLoop.Port, on loop: RunLoop, until last: UInt32) async -> Int {
    var total = 0
    for await message in loop.messages(of: port) {
        if message.id == last { break }
        for case .bytes(let bytes) in message.components { total += bytes.count }
    }
    return total
}

@Suite(.bounded, .tags(.threads)) struct `Code of the page on ports` {
    @Test func `the check-in of the Guide, with an answer and a farewell`() throws {
        #expect(try onFreshThread { _ in checkIn() } == 42)
    }

    @Test func `room`() throws {
        let port = RunLoop.Port(capacity: 2)
        #expect(offer([1], to: port))
        try insist([2], to: port)
        #expect(!offer([3], to: port))
        port.invalidate()
        #expect(!offer([4], to: port))
    }

    @Test func `room, for tasks and loops`() async throws {
        let (sender, receiver) = (try RunLoopThread(name: "sender"), try RunLoopThread(name: "receiver"))
        let bytes = Box(0)
        let port = RunLoop.Port(capacity: 2) { _, message in
            for case .bytes(let part) in message.components { bytes.change { $0 += part.count } }
        }
        sender.runLoop.perform { [loop = sender.runLoop] in sendAll([[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]], to: port, on: loop) }
        receiver.runLoop.add(port)
        for _ in 0..<5 { try await insistInTask([1], to: port) }
        try await suspendUntil("all records") { bytes.value == 15 }
        for thread in [sender, receiver] {
            thread.stop()
            await thread.join()
        }
    }

    @Test func `in a task`() async throws {
        let thread = try RunLoopThread(name: "frames")
        defer { thread.stop() }
        let port = RunLoop.Port(capacity: 64)
        async let total = sum(port, on: thread.runLoop, until: 9)
        for count in 1...3 { try port.send(RunLoop.PortMessage(id: 1, components: [.bytes(Array(repeating: 0, count: count))])) }
        try port.send(RunLoop.PortMessage(id: 9))
        #expect(await total == 6)
    }
}
