// Rules proved here (semantics 16.17 to 16.20; PortQueue.swift): a full port notifies those that wait for room.
// - A task's send suspends until there is room. Tasks and threads get room in the order in which they came.
// - It ends with its date, its task's cancellation, or the port; then the message is not sent.
// - `whenRoom` calls its closure once, on its loop, when a send would be accepted or the port is invalid.
// - Each delivery notifies one request, and the last delivery notifies all. So none waits while there is room.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private typealias Message = RunLoop.PortMessage
private typealias PortError = RunLoop.PortError

private func waitForSenders(_ count: Int, of port: RunLoop.Port) async throws {
    try await suspendUntil("the senders to wait") { port.queue.senderCount == count }
}

@Suite(.bounded, .tags(.threads)) struct PortSendingTaskTests {
    @Test func `a request that an ended loop had accepted is invalid, and its closure is released`() throws {
        let probe = WeakReference<Trace>()
        let request = try onFreshThread { loop in
            let (port, captured) = (RunLoop.Port(capacity: 1) { _, _ in }, Trace())
            probe.value = captured
            // There is room, so the loop accepts the closure, in a mode that never runs.
            return port.whenRoom(on: loop, inModes: ["never"]) { captured.add("room") }
        }
        #expect(!request.isValid)
        #expect(probe.value == nil)
    }

    @Test func `a task's send suspends until there is room`() async throws {
        let trace = Trace()
        try await withLoopThread { thread in
            let port = RunLoop.Port(capacity: 1) { _, message in trace.add("\(message.id)") }
            try port.send(1)
            let sender = Task { try await port.send(Message(id: 2), before: .distantFuture) }
            try await waitForSenders(1, of: port)
            thread.runLoop.add(port)
            try await sender.value
            try await suspendUntil("both messages") { trace.list.count == 2 }
        }
        #expect(trace.description == "1 2")
    }

    @Test func `a task's send to a port with room sends at once`() async throws {
        let port = RunLoop.Port(capacity: 2)
        for date in [RunLoop.Instant.distantPast, .distantFuture] { try await port.send(Message(id: 1), before: date) }
        await #expect(throws: PortError.sendTimedOut) { try await port.send(Message(id: 1), before: .now) }
        await #expect(throws: PortError.sendTimedOut) { try await port.send(Message(id: 1), before: .now + .milliseconds(1)) }
        #expect(port.queue.count == 2 && port.queue.senderCount == 0)
    }

    @Test func `tasks and threads get room in the order in which they came`() async throws {
        let trace = Trace()
        try await withLoopThread { thread in
            let port = RunLoop.Port(capacity: 1) { port, message in
                trace.add("\(message.id)")
                // A sender that does not wait cannot take the room of those that do.
                if message.id < 5 { #expect(throws: PortError.sendTimedOut) { try port.send(99) } }
            }
            try port.send(0)
            var tasks: [Task<Void, any Error>] = []
            var threads: [JoinableThread<Void>] = []
            for id in 1...6 as ClosedRange<UInt32> {
                if id % 2 == 0 {
                    threads.append(plainThread { try port.send(Message(id: id), before: .now + patience) })
                } else {
                    tasks.append(Task { try await port.send(Message(id: id), before: .now + patience) })
                }
                try await waitForSenders(Int(id), of: port)
            }
            thread.runLoop.add(port)
            for task in tasks { try await task.value }
            for thread in threads { try thread.join() }
            try await suspendUntil("all messages") { trace.list.count == 7 }
        }
        #expect(trace.description == "0 1 2 3 4 5 6")
    }

    @Test func `a cancelled send fails at once, sends nothing, and leaves its place to the next`() async throws {
        let trace = Trace()
        try await withLoopThread { thread in
            let port = RunLoop.Port(capacity: 1) { _, message in trace.add("\(message.id)") }
            try port.send(1)
            let first = Task { try await port.send(Message(id: 2), before: .distantFuture) }
            try await waitForSenders(1, of: port)
            let second = Task { try await port.send(Message(id: 3), before: .distantFuture) }
            try await waitForSenders(2, of: port)
            first.cancel()
            await #expect(throws: PortError.sendTimedOut) { try await first.value }
            #expect(port.queue.senderCount == 1)
            thread.runLoop.add(port)
            try await second.value
            try await suspendUntil("both messages") { trace.list.count == 2 }
        }
        #expect(trace.description == "1 3")
    }

    @Test func `a task that was cancelled before sends nothing, even if there is room`() async throws {
        let port = RunLoop.Port()
        let sender = Task {
            await suspendUntilCancelled()
            try await port.send(Message(id: 1), before: .distantFuture)
        }
        sender.cancel()
        await #expect(throws: PortError.sendTimedOut) { try await sender.value }
        #expect(port.queue.count == 0)
    }

    @Test func `invalidating the port ends the sends of tasks`() async throws {
        let port = RunLoop.Port(capacity: 1)
        try port.send(1)
        let senders = (0..<100).map { _ in Task { try await port.send(Message(id: 2), before: .now + patience) } }
        try await waitForSenders(100, of: port)
        port.invalidate()
        for sender in senders { await #expect(throws: PortError.invalidPort) { try await sender.value } }
        await #expect(throws: PortError.invalidPort) { try await port.send(Message(id: 2), before: .distantFuture) }
    }

    @Test func `a thousand tasks wait for room in a small port, and no thread of the pool is blocked`() async throws {
        let received = Box<Set<UInt32>>([])
        try await withLoopThread { thread in
            let port = RunLoop.Port(capacity: 2) { _, message in received.change { _ = $0.insert(message.id) } }
            let senders = (0..<1_000 as Range<UInt32>).map { id in
                Task { try await port.send(Message(id: id), before: .now + patience) }
            }
            try await waitForSenders(998, of: port)
            for _ in 0..<100 { await Task.detached {}.value }
            thread.runLoop.add(port)
            for sender in senders { try await sender.value }
            try await suspendUntil("all messages") { received.value.count == 1_000 }
        }
    }

    @Test func `cancellation, the date and room compete, and a message is sent if and only if the send succeeds`() async throws {
        try await withLoopThread { thread in
            for round in 0..<100 / roundsDivisor {
                let received = Box<Set<UInt32>>([])
                let port = RunLoop.Port(capacity: 1) { _, message in received.change { _ = $0.insert(message.id) } }
                let senders = (0..<12 as Range<UInt32>).map { id in
                    Task {
                        let date = id % 3 == 0 ? RunLoop.Instant.now + .microseconds(Int64(id) * 20) : .now + patience
                        do { try await port.send(Message(id: id), before: date) } catch { return false }
                        return true
                    }
                }
                thread.runLoop.add(port)
                for sender in senders[0..<(round % 4)] { sender.cancel() }
                var sent: Set<UInt32> = []
                for (id, sender) in senders.enumerated() where await sender.value { sent.insert(UInt32(id)) }
                // The barrier comes last.
                try await port.send(Message(id: 1_000), before: .distantFuture)
                try await suspendUntil("the last message") { received.value.contains(1_000) }
                #expect(received.value == sent.union([1_000]))
                #expect(port.queue.senderCount == 0)
                port.invalidate()
            }
        }
    }
}

@Suite(.bounded, .tags(.threads)) struct RoomRequestTests {
    @Test func `a request is notified once, on its loop, when a message is delivered`() throws {
        let trace = Trace()
        let sender = RunningLoop()
        try onFreshThread { loop in
            let port = loop.addPort(capacity: 2, trace)
            try port.send(1, 2)
            let request = port.whenRoom(on: sender.loop) { [loop = sender.loop] in trace.add("room \(loop.isCurrent)") }
            #expect(request.isValid)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            try waitUntil("the notification") { trace.list.count == 2 }
            #expect(!request.isValid)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
        }
        try sender.end()
        #expect(trace.list.sorted().joined(separator: " ") == "1 2 room true")
    }

    @Test func `if there is room already, the closure is called in the next pass`() throws {
        try inManualTime { loop, _, trace in
            let port = RunLoop.Port(capacity: 1)
            port.whenRoom(on: loop) { trace.add("room") }
            #expect(trace.take() == "")
            _ = loop.run(for: .zero)
            #expect(trace.take() == "room")
        }
    }

    @Test func `each delivery notifies one request, and the last delivery notifies all`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 3, trace)
            try port.send(1, 2, 3)
            for index in 1...5 { port.whenRoom(on: loop) { trace.add("r\(index)") } }
            for expected in ["1", "r1 2", "r2 3", "r3 r4 r5"] {
                _ = loop.run(for: .zero, returnAfterSourceHandled: true)
                // The closures of step 4 end such a run before the port has its turn.
                while !trace.description.hasSuffix(expected.suffix(1)) { _ = loop.run(for: .zero, returnAfterSourceHandled: true) }
                #expect(trace.take() == expected)
            }
        }
    }

    @Test func `a notified request that sends nothing keeps no other one waiting`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 1, trace)
            try port.send(1)
            port.whenRoom(on: loop) { trace.add("idle") }
            port.whenRoom(on: loop) {
                trace.add("sends")
                try! port.send(2)
            }
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "1 idle sends 2")
        }
    }

    @Test func `a sender that waits with its message goes before the requests`() async throws {
        let trace = Trace()
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let port = RunLoop.Port(capacity: 1) { _, message in trace.add("\(message.id)") }
            try port.send(1)
            port.whenRoom(on: loop) { trace.add("room") }
            let sender = Task { try await port.send(Message(id: 2), before: .distantFuture) }
            try await waitForSenders(1, of: port)
            loop.add(port)
            try await sender.value
            try await suspendUntil("the notification") { trace.list.count == 3 }
        }
        #expect(trace.description == "1 2 room")
    }

    @Test func `a cancelled request is not notified, even if its closure is queued`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 1, trace)
            try port.send(1)
            let waiting = port.whenRoom(on: loop) { trace.add("waiting") }
            waiting.cancel()
            #expect(!waiting.isValid && !port.queue.isAwaited)
            _ = loop.run(for: .zero)
            let queued = port.whenRoom(on: loop) { trace.add("queued") }
            queued.cancel()
            queued.cancel()
            _ = loop.run(for: .zero)
            #expect(trace.take() == "1")
        }
    }

    @Test func `invalidating and releasing the port notify all requests`() throws {
        try inManualTime { loop, _, trace in
            for isReleased in [true, false] {
                var port: RunLoop.Port? = RunLoop.Port(capacity: 1)
                try port!.send(1)
                for index in 1...3 {
                    port!.whenRoom(on: loop) { [weak port] in
                        trace.add("\(index)")
                        if let port { #expect(throws: PortError.invalidPort) { try port.send(2) } }
                    }
                }
                let kept = isReleased ? nil : port
                kept?.invalidate()
                port = nil
                _ = loop.run(for: .zero)
                #expect(trace.take() == "1 2 3")
                kept?.whenRoom(on: loop) { trace.add("late") }
                _ = loop.run(for: .zero)
                #expect(trace.take() == (isReleased ? "" : "late"))
            }
        }
    }

    @Test func `a loop that has ended refuses the notification, and others get theirs`() throws {
        let ended = try onFreshThread { loop in loop }
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 1, trace)
            try port.send(1)
            let refused = port.whenRoom(on: ended) { trace.add("never") }
            port.whenRoom(on: loop) { trace.add("room") }
            #expect(refused.isValid)
            _ = loop.run(for: .milliseconds(1))
            #expect(trace.take() == "1 room")
            #expect(!refused.isValid)
        }
    }

    @Test func `a notification waits for the request's mode`() throws {
        try inManualTime { loop, _, trace in
            let port = RunLoop.Port()
            port.whenRoom(on: loop, inModes: [.first]) { trace.add("first") }
            _ = loop.run(for: .zero)
            #expect(trace.take() == "")
            _ = loop.run(mode: .first, for: .zero)
            #expect(trace.take() == "first")
        }
    }

    @Test(arguments: [1, 2, 64])
    func `senders that only use notifications lose no message and do not get stuck`(capacity: Int) throws {
        let (senders, each) = (4, 2_000 / roundsDivisor)
        let total = Box(0)
        let published = Box<RunLoop.Port?>(nil)
        let running = RunningLoop { loop in
            let port = RunLoop.Port(capacity: capacity) { _, _ in
                if total.increment() == senders * each { loop.stop() }
            }
            loop.add(port)
            published.value = port
        }
        let port = published.value!
        let clients = (0..<senders).map { _ in RunningLoop() }
        for client in clients {
            let loop = client.loop
            let left = Box(each)
            @Sendable func sendAll() {
                while left.value > 0 {  // ends: each turn sends a message, or returns
                    do { try port.send(Message(id: 1)) } catch {
                        port.whenRoom(on: loop) { sendAll() }
                        return
                    }
                    left.change { $0 -= 1 }
                }
            }
            loop.perform { sendAll() }
        }
        #expect(try running.join() == .stopped)
        for client in clients { try client.end() }
        #expect(total.value == senders * each)
    }
}
