// Rules proved here (semantics 16.1 to 16.6, 16.15; Serving.swift):
// - A message arrives as the sender sent it: id, bytes and ports in order, and the reply port. A message may contain only its id.
// - Each call of the handler receives one message, in FIFO order, and counts as a handled source.
// - Messages wait while the port is in no mode or other modes run. Removing the port keeps its messages. A port in several modes delivers
//   each message once.
// - A pass delivers the messages that are queued when the port's turn comes. A run that returns after a source delivers exactly one.
// - Step 9 serves ports, in turn with timers and descriptors. The loop does not sleep while a port of its mode has a message.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.threads)) struct PortDeliveryTests {
    @Test func `a message arrives with its id, its components in order, and its reply port`() throws {
        try onFreshThread { loop in
            let (inside, reply) = (RunLoop.Port(), RunLoop.Port())
            let seen = Box<RunLoop.PortMessage?>(nil)
            let port = RunLoop.Port { _, message in seen.value = message }
            loop.add(port)
            try port.send(RunLoop.PortMessage(id: 7, components: [.bytes([1, 2]), .port(inside), .bytes([])], replyPort: reply))
            #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
            let message = try #require(seen.value)
            #expect(message.id == 7)
            #expect(message.replyPort === reply)
            #expect(message.components.count == 3)
            if case .bytes(let bytes) = message.components[0] { #expect(bytes == [1, 2]) } else { Issue.record("no bytes") }
            if case .port(let port) = message.components[1] { #expect(port === inside) } else { Issue.record("no port") }
            if case .bytes(let bytes) = message.components[2] { #expect(bytes == []) } else { Issue.record("no bytes") }
        }
    }

    @Test func `a message that contains only its id arrives`() throws {
        let trace = try inManualTime { loop, _, trace in
            try loop.addPort(trace).send(0)
            #expect(loop.run(for: .zero) == .timedOut)
            return trace.description
        }
        #expect(trace == "0")
    }

    @Test func `messages are delivered in FIFO order, one for each call of the handler`() throws {
        let trace = try inManualTime { loop, _, trace in
            let port = loop.addPort(trace)
            for id in 0..<100 as Range<UInt32> { try port.send(id) }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(loop.statistics.sourcesHandled == 100)
            return trace.description
        }
        #expect(trace == (0..<100).map(String.init).joined(separator: " "))
    }

    @Test func `a run that returns after a source delivers one message, and the next run delivers the next`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace)
            trace.observe(loop)
            try port.send(1, 2, 3)
            for id in 1...3 {
                #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.take() == "E T S \(id) X")
            }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `a run that returns after a source serves ports in turn`() throws {
        try inManualTime { loop, _, trace in
            let ports = ["a", "b", "c"].map { loop.addPort(trace, prefix: $0) }
            for port in ports { try port.send(1, 2) }
            for _ in 0..<6 { #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource) }
            #expect(trace.take() == "a1 b1 c1 a2 b2 c2")
        }
    }

    @Test func `a port that runs out of messages does not change the turns of the others`() throws {
        try inManualTime { loop, _, trace in
            let ports = ["a", "b", "c"].map { loop.addPort(trace, prefix: $0) }
            try ports[0].send(1, 2, 3)
            try ports[1].send(1)
            try ports[2].send(1)
            for _ in 0..<5 { #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource) }
            #expect(trace.take() == "a1 b1 c1 a2 a3")
        }
    }

    @Test func `a port that is removed does not change the turns of the others`() throws {
        try inManualTime { loop, _, trace in
            let ports = ["a", "b", "c", "d"].map { loop.addPort(trace, prefix: $0) }
            for port in ports { try port.send(1, 2) }
            for _ in 0..<2 { #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource) }
            loop.remove(ports[0])
            for _ in 0..<5 { #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource) }
            #expect(trace.take() == "a1 b1 c1 d1 b2 c2 d2")
        }
    }

    @Test func `a pass delivers the messages that were queued when it began, before it sleeps`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace)
            trace.observe(loop)
            try port.send(1, 2, 3)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "E T S 1 2 3 T S W A X")
        }
    }

    @Test func `a message that a handler sends to its own port waits for the next pass`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { port, message in
                if message.id < 3 { try! port.send(message.id + 1) }
            }
            trace.observe(loop)
            try port.send(1)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "E T S 1 T S 2 T S 3 T S W A X")
        }
    }

    @Test(arguments: [RunLoop.Activity.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting])
    func `the loop does not sleep over a message that an observer sends`(activity: RunLoop.Activity) throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace)
            trace.observe(loop)
            loop.atFirst(activity) { try! port.send(1) }
            if activity == .afterWaiting { loop.atFirst(.beforeWaiting) { loop.wakeUp() } }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == (activity == .beforeWaiting || activity == .afterWaiting ? "E T S W A 1 X" : "E T S 1 X"))
        }
    }

    @Test func `a message from another thread wakes a sleeping loop`() throws {
        let trace = Trace()
        let published = Box<RunLoop.Port?>(nil)
        let running = RunningLoop { loop in
            published.value = loop.addPort(trace) { _, _ in loop.stop() }
            trace.observe(loop)
        }
        try waitUntilAsleep(running.loop)
        try published.value!.send(1)
        #expect(try running.join() == .stopped)
        #expect(trace.description == "E T S W A 1 X")
    }

    @Test func `messages wait while the port is in no mode, and are delivered when it is added`() throws {
        try inManualTime { loop, _, trace in
            let port = RunLoop.Port { _, message in trace.add("\(message.id)") }
            try port.send(1, 2)
            loop.addIdleSource()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "")
            loop.add(port)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "1 2")
        }
    }

    @Test func `a port with messages is served at once when it is added to a sleeping loop`() throws {
        let trace = Trace()
        let running = RunningLoop()
        let port = RunLoop.Port { _, message in
            trace.add("\(message.id)")
            running.loop.stop()
        }
        try port.send(1)
        try waitUntilAsleep(running.loop)
        running.loop.add(port)
        #expect(try running.join() == .stopped)
        #expect(trace.description == "1")
    }

    @Test func `messages wait while other modes run, and do not keep those runs from sleeping`() throws {
        try inManualTime { loop, clock, trace in
            let port = loop.addPort(forMode: .first, trace)
            loop.addIdleSource(forMode: .second)
            trace.observe(loop, in: .second)
            try port.send(1, 2)
            #expect(loop.run(mode: .second, for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
            #expect(loop.run(mode: .first, for: .zero) == .timedOut)
            #expect(trace.take() == "1 2")
        }
    }

    @Test func `removing a port keeps its messages, and adding it again delivers them`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace)
            loop.addIdleSource()
            try port.send(1, 2)
            loop.remove(port)
            try port.send(3)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            loop.add(port)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "1 2 3")
        }
    }

    @Test func `a port that its own handler removes delivers no more messages, and keeps the rest in order`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { port, message in if message.id == 2 { loop.remove(port) } }
            loop.addIdleSource()
            try port.send(1, 2, 3, 4)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "1 2")
            try port.send(5)
            loop.add(port)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "3 4 5")
        }
    }

    @Test func `a port is not served if an earlier port of the pass removes it`() throws {
        try inManualTime { loop, _, trace in
            let other = Box<RunLoop.Port?>(nil)
            let first = loop.addPort(trace, prefix: "a") { _, _ in loop.remove(other.value!) }
            other.value = loop.addPort(trace, prefix: "b")
            try first.send(1)
            try other.value!.send(1)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "a1")
        }
    }

    @Test func `a port that its own handler removes and adds again has one turn in a pass, as do the other ports`() throws {
        try inManualTime { loop, _, trace in
            let first = loop.addPort(trace, prefix: "a") { port, message in
                loop.remove(port)
                loop.add(port)
                if message.id < 3 { try! port.send(message.id + 1) }
            }
            let second = loop.addPort(trace, prefix: "b")
            try first.send(1)
            try second.send(1)
            for said in ["a1 b1", "a2", "a3"] {
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.take() == said)
            }
        }
    }

    @Test func `a port that another port's handler removes and adds again has its turn`() throws {
        try inManualTime { loop, _, trace in
            let other = Box<RunLoop.Port?>(nil)
            let first = loop.addPort(trace, prefix: "a") { port, message in
                loop.remove(other.value!)
                loop.add(other.value!)
                if message.id < 3 { try! port.send(message.id + 1) }
            }
            other.value = loop.addPort(trace, prefix: "b")
            try first.send(1)
            try other.value!.send(1)
            for said in ["a1 b1", "a2", "a3"] {
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.take() == said)
            }
        }
    }

    @Test func `a port has one turn in a pass, even if another port leaves during the pass`() throws {
        try inManualTime { loop, _, trace in
            let other = Box<RunLoop.Port?>(nil)
            let first = loop.addPort(trace, prefix: "a") { port, message in
                loop.remove(other.value!)
                if message.id < 2 { try! port.send(message.id + 1) }
            }
            other.value = loop.addPort(trace, prefix: "b")
            try first.send(1)
            try other.value!.send(1)
            for said in ["a1", "a2"] {
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.take() == said)
            }
        }
    }

    @Test func `a port in several modes delivers each message once, and adding it twice has no further effect`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(forMode: .first, trace)
            loop.add(port, forMode: .first)
            loop.add(port, forMode: .second)
            try port.send(1, 2, 3)
            #expect(loop.run(mode: .second, for: .zero, returnAfterSourceHandled: true) == .handledSource)
            #expect(loop.run(mode: .first, for: .zero) == .timedOut)
            #expect(loop.run(mode: .second, for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "1 2 3")
        }
    }

    @Test func `a mode that becomes common serves the messages of a common port`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(forMode: .common, trace)
            try port.send(1)
            loop.addCommonMode(.first)
            #expect(loop.run(mode: .first, for: .zero) == .timedOut)
            #expect(trace.take() == "1")
        }
    }

    @Test func `a message sent at step 4 is delivered in the same pass`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace)
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in
                trace.add("source")
                try! port.send(1)
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S source 1 X")
        }
    }

    @Test func `a port keeps its mode from being empty, with or without a handler`() throws {
        try inManualTime { loop, _, _ in
            let port = RunLoop.Port()
            #expect(loop.run(for: .seconds(1)) == .finished)
            loop.add(port)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            loop.remove(port)
            #expect(loop.run(for: .seconds(1)) == .finished)
        }
    }

    @Test func `a port without a handler keeps its messages, and its loop sleeps meanwhile`() throws {
        try inManualTime { loop, _, trace in
            let port = RunLoop.Port(capacity: 2)
            loop.add(port)
            trace.observe(loop)
            try port.send(1, 2)
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(3) }
            #expect(loop.debugDescription.contains("port without a handler, waiting messages: 2"))
        }
    }

    @Test func `the description says how many messages wait`() throws {
        try inManualTime { loop, _, trace in
            let port = RunLoop.Port(label: "orders") { _, _ in }
            loop.add(port)
            #expect(loop.debugDescription.contains("    port \"orders\", made at"))
            try port.send(1, 2)
            #expect(loop.debugDescription.contains("    port, waiting messages: 2 \"orders\", made at"))
        }
    }
}

@Suite(.tags(.threads)) struct PortTurnTests {
    @Test func `a port that sends to itself starves neither timers nor descriptors, and they do not starve it`() throws {
        try inManualTime { loop, clock, trace in
            let port = loop.addPort(trace, prefix: "m") { port, message in try! port.send(message.id) }
            let pipe = Pipe()
            pipe.write()
            let descriptor = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add("d") }
            loop.add(descriptor)
            let timer = RunLoop.Timer.onDemand { timer in
                trace.add("t")
                timer.nextFire = clock.now
            }
            loop.add(timer)
            timer.nextFire = clock.now
            try port.send(0)
            for _ in 0..<9 { #expect(loop.run(for: .zero) == .timedOut) }
            #expect(trace.take() == "t d m0 t d m0 t d m0")
        }
    }

    @Test func `a flood of messages does not keep a run from its stop or its limit`() throws {
        try inManualTime { loop, _, trace in
            let count = Counter()
            let port = RunLoop.Port { port, message in
                if count.increment() == 1_000 { loop.stop() }
                try! port.send(message)
            }
            loop.add(port)
            try port.send(1)
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(loop.run(for: .zero) == .timedOut)
        }
    }

    @Test func `a stop in the handler leaves the remaining messages queued, in order`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { _, message in if message.id == 2 { loop.stop() } }
            trace.observe(loop)
            try port.send(1, 2, 3, 4)
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "E T S 1 2 X")
            try port.send(5)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S 3 4 5 X")
        }
    }

    @Test func `manual time does not jump while a message waits`() throws {
        try inManualTime { loop, clock, trace in
            let port = loop.addPort(trace) { _, _ in trace.add("\(clock.now.nanoseconds)") }
            loop.addTimer(at: RunLoop.Instant(nanoseconds: 5)) { _ in trace.add("timer") }
            try port.send(1)
            #expect(loop.run(for: .nanoseconds(9)) == .timedOut)
            #expect(trace.take() == "1 0 timer")
        }
    }

    @Test func `a shared clock does not jump over a message that one of its loops sends to another`() throws {
        let clock = RunLoop.ManualClock(autoAdvance: true)
        let (trace, address) = (Trace(), Box<RunLoop.Port?>(nil))
        let (receiverIsReady, senderIsReady) = (Gate(), Gate())
        let receiver = joinableThread { loop in
            loop.use(clock)
            address.value = loop.addPort(trace) { _, _ in trace.add("at \(clock.now.nanoseconds)") }
            receiverIsReady.open()
            // While this loop is alone on the clock, it would jump to its limit.
            senderIsReady.wait()
            return loop.run(until: RunLoop.Instant(nanoseconds: 1_000))
        }
        let sender = joinableThread { loop in
            loop.use(clock)
            senderIsReady.open()
            receiverIsReady.wait()
            for date in 1...5 as ClosedRange<Int64> {
                loop.addTimer(at: RunLoop.Instant(nanoseconds: date * 10)) { _ in try! address.value!.send(UInt32(date)) }
            }
            return loop.run(until: RunLoop.Instant(nanoseconds: 1_000))
        }
        #expect(try sender.join() == .finished)
        #expect(try receiver.join() == .timedOut)
        #expect(trace.description == "1 at 10 2 at 20 3 at 30 4 at 40 5 at 50")
    }
}
