// Rules proved here (semantics 16.9 to 16.14; PortQueue.swift):
// - The queue is bounded: a message takes up room until its handler is called. If its date is now or past, a send tries once.
// - With a later date, a send blocks until there is room, the date passes, or the port is invalid. Waiting senders get room in order of
//   arrival.
// - Sending never runs the sender's loop.

import EventLoop
import EventLoopTestSupport
import Testing

private typealias Message = RunLoop.PortMessage

/// A date that no correct send reaches.
private var farOff: RunLoop.Instant { .now + patience }

@Suite(.bounded, .tags(.threads)) struct PortSendTests {
    @Test(arguments: [1, 2, 7, 300])
    func `a port accepts as many messages as its capacity, and no more`(capacity: Int) throws {
        let port = RunLoop.Port(capacity: capacity) { _, _ in }
        #expect(port.capacity == capacity)
        for id in 0..<UInt32(capacity) { try port.send(id) }
        #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(0) }
        for date in [RunLoop.Instant.distantPast, .now, RunLoop.Instant(nanoseconds: 0)] {
            #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(Message(id: 0), before: date) }
        }
    }

    @Test func `the capacity is 1024 by default`() { #expect(RunLoop.Port().capacity == 1024) }

    @Test func `a message makes room when its handler is called, even while other messages of its pass wait`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 3, trace) { port, message in
                guard message.id <= 3 else { return }
                // The message that is being handled makes room for one message. The messages behind it make none.
                try! port.send(message.id + 10)
                #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(99) }
            }
            try port.send(1, 2, 3)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "1 2 3 11 12 13")
        }
    }

    @Test func `a refused message is not queued`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 1, trace)
            try port.send(1)
            #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(2) }
            #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(Message(id: 3), before: .now + .milliseconds(1)) }
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "1")
        }
    }

    @Test func `a send with a later date waits for room`() throws {
        let trace = Trace()
        let port = RunLoop.Port(capacity: 1) { _, message in trace.add("\(message.id)") }
        try port.send(1)
        let sender = plainThread { try port.send(Message(id: 2), before: .distantFuture) }
        try onFreshThread { loop in
            loop.add(port)
            while trace.list.count < 2 { _ = loop.run(for: patience, returnAfterSourceHandled: true) }
        }
        try sender.join()
        #expect(trace.description == "1 2")
    }

    @Test func `a send that finds no room by its date sends nothing`() throws {
        let port = RunLoop.Port(capacity: 1) { _, _ in }
        try port.send(1)
        let before = RunLoop.Instant.now
        #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(Message(id: 2), before: before + .milliseconds(2)) }
        #expect(RunLoop.Instant.now >= before + .milliseconds(2))
    }

    @Test func `waiting senders get room in the order in which they arrived`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            let port = loop.addPort(capacity: 1, trace) { port, message in
                // A sender that arrives now and does not wait cannot take the room of the waiting senders.
                if message.id < 4 { #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(9) } }
            }
            try port.send(0)
            let senders = try (1...5 as ClosedRange<UInt32>).map { id in
                let sender = plainThread { try port.send(Message(id: id), before: farOff) }
                try waitUntil("the senders to wait") { loop.debugDescription.contains("waiting senders: \(id)") }
                return sender
            }
            for _ in 0...5 { #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource) }
            for sender in senders { try sender.join() }
        }
        #expect(trace.description == "0 1 2 3 4 5")
    }

    @Test func `sending on the port's own thread does not run its loop, and waits until the date`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(capacity: 1, trace) { port, message in
                guard message.id == 1 else { return }
                try! port.send(2)
                #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(Message(id: 3), before: .now + .milliseconds(1)) }
                trace.add("sent")
            }
            loop.addTimer(at: .distantPast) { _ in trace.add("timer") }
            try port.send(1)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "timer 1 sent 2")
        }
    }

    @Test func `a sender gets room while the handler still runs, even if the handler waits for the sender`() throws {
        // There is room from the beginning of the handler's call, not from its end.
        let (port, second) = (Box<RunLoop.Port?>(nil), Gate())
        let trace = Trace()
        let running = RunningLoop { loop in
            port.value = loop.addPort(capacity: 1, trace) { _, message in
                if message.id == 1 { second.wait() } else { loop.stop() }
            }
        }
        try port.value!.send(1)
        try port.value!.send(Message(id: 2), before: farOff)
        second.open()
        #expect(try running.join() == .stopped)
        #expect(trace.description == "1 2")
    }

    @Test func `a port cannot have a capacity of zero`() async {
        await #expect(processExitsWith: .failure) { _ = RunLoop.Port(capacity: 0) }
    }
}

@Suite(.tags(.threads)) struct PortInvalidationTests {
    @Test func `a send to an invalid port throws`() throws {
        let port = RunLoop.Port { _, _ in }
        port.invalidate()
        #expect(!port.isValid)
        #expect(throws: RunLoop.PortError.invalidPort) { try port.send(1) }
        #expect(throws: RunLoop.PortError.invalidPort) { try port.send(Message(id: 1), before: farOff) }
    }

    @Test func `invalidating drops the queued messages at once, and calls onInvalidation once`() throws {
        let trace = Trace()
        let port = RunLoop.Port { _, _ in trace.add("message") }
        let inside = Box<RunLoop.Port?>(RunLoop.Port())
        inside.value!.onInvalidation { trace.add("dropped") }
        port.onInvalidation { trace.add("end") }
        try port.send(Message(id: 1, components: [.port(inside.value!)]))
        inside.value = nil
        #expect(trace.take() == "")
        for _ in 0..<3 { port.invalidate() }
        #expect(trace.take() == "dropped end")
    }

    @Test func `an invalidated port leaves every mode of every loop`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(forMode: .common, trace)
            loop.add(port, forMode: .first)
            try port.send(1)
            port.invalidate()
            for mode in [RunLoop.Mode.common, .default, .first] {
                #expect(!loop.contains(port, forMode: mode))
                #expect(!loop.add(port, forMode: mode))
            }
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `invalidating in the handler drops the rest of the pass, and onInvalidation follows the handler's return`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { port, _ in
                port.invalidate()
                trace.add("still here")
                #expect(throws: RunLoop.PortError.invalidPort) { try port.send(9) }
            }
            port.onInvalidation { trace.add("end") }
            try port.send(1)
            do {
                let inside = RunLoop.Port()
                inside.onInvalidation { trace.add("dropped") }
                try port.send(Message(id: 2, components: [.port(inside)]))
            }
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "1 still here dropped end")
        }
    }

    @Test func `invalidating the port ends the wait of its senders`() throws {
        try onFreshThread { loop in
            let port = RunLoop.Port(capacity: 1) { _, _ in }
            loop.add(port)
            try port.send(1)
            let senders = (0..<3).map { _ in plainThread { try port.send(Message(id: 2), before: .distantFuture) } }
            try waitUntil("the senders to wait") { loop.debugDescription.contains("waiting senders: 3") }
            port.invalidate()
            for sender in senders { #expect(throws: RunLoop.PortError.invalidPort) { try sender.join() } }
        }
    }

    @Test func `the last release of a port invalidates it`() throws {
        let trace = Trace()
        do {
            let port = RunLoop.Port { _, _ in }
            let inside = RunLoop.Port()
            inside.onInvalidation { trace.add("dropped") }
            port.onInvalidation { trace.add("end") }
            try port.send(Message(id: 1, components: [.port(inside)]))
        }
        #expect(trace.list.sorted() == ["dropped", "end"])
    }

    @Test func `a loop that ends invalidates a port that nothing else retains, and releases the others`() throws {
        let trace = Trace()
        let kept = try onFreshThread { loop in
            let kept = RunLoop.Port { _, message in trace.add("\(message.id)") }
            let gone = RunLoop.Port { _, _ in }
            gone.onInvalidation { trace.add("gone") }
            loop.add(kept)
            loop.add(gone)
            try kept.send(1)
            return kept
        }
        #expect(trace.take() == "gone")
        #expect(kept.isValid)
        try onFreshThread { loop in
            loop.add(kept)
            #expect(loop.run(for: .zero) == .timedOut)
        }
        #expect(trace.take() == "1")
    }

    @Test func `a port in its own queue is released when it is invalidated`() throws {
        let weak = WeakReference<RunLoop.Port>()
        try onFreshThread { loop in
            let port = RunLoop.Port { _, _ in }
            weak.value = port
            loop.add(port)
            try port.send(Message(id: 1, components: [.port(port)], replyPort: port))
            port.invalidate()
        }
        #expect(weak.value == nil)
    }

    @Test func `a reply port that only its message retains is still valid in the handler`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { _, message in
                #expect(message.replyPort?.isValid == true)
                #expect(throws: Never.self) { try message.replyPort?.send(2) }
            }
            try port.send(Message(id: 1, replyPort: RunLoop.Port()))
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "1")
        }
    }

    @Test func `invalidating a port wakes its loop if nothing else keeps the mode from being empty`() throws {
        let published = Box<RunLoop.Port?>(nil)
        let thread = joinableThread { loop in
            let port = RunLoop.Port { _, _ in }
            loop.add(port)
            published.value = port
            return loop.run(for: patience)
        }
        try waitUntil("the port") { published.value != nil }
        published.value!.invalidate()
        #expect(try thread.join() == .finished)
    }
}
