// Rules proved here (semantics 8, 16.8):
// - A run nested in a port's handler serves the remaining messages in order. The outer run continues after them, and no message is
//   delivered twice.
// - A nested run of another mode loses no message of the outer mode.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct PortNestedRunTests {
    @Test func `a run nested in the handler serves the next messages, in order`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { _, message in
                guard message.id == 1 else { return }
                trace.add("(")
                #expect(loop.run(for: .zero) == .timedOut)
                trace.add(")")
            }
            try port.send(1, 2, 3)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "1 ( 2 3 )")
        }
    }

    @Test func `a nested run that returns after a source takes one message, and the outer run continues`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { port, message in
                guard message.id == 1 || message.id == 3 else { return }
                try! port.send(message.id + 10)
                #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
                trace.add("/\(message.id)")
            }
            try port.send(1, 2, 3, 4, 5)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "1 2 /1 3 4 /3 5 11 13")
        }
    }

    @Test func `handlers nested as deep as there are messages receive each message once`() throws {
        try inManualTime { loop, _, trace in
            let port = loop.addPort(trace) { _, _ in _ = loop.run(for: .zero, returnAfterSourceHandled: true) }
            try port.send(1, 2, 3, 4, 5)
            #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "1 2 3 4 5")
            #expect(loop.statistics.sourcesHandled == 5)
        }
    }

    @Test func `messages of another port that a nested run leaves are delivered before the outer run sleeps`() throws {
        try inManualTime { loop, clock, trace in
            let first = loop.addPort(trace, prefix: "a") { _, _ in
                #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
                trace.add("/a")
            }
            let second = loop.addPort(trace, prefix: "b") { _, _ in trace.add("@\(clock.ms)") }
            try first.send(1)
            try second.send(1, 2, 3)
            #expect(loop.run(for: .milliseconds(5)) == .timedOut)
            #expect(trace.take() == "a1 b1 @0 /a b2 @0 b3 @0")
        }
    }

    @Test func `a port that a handler makes and sends to is served before the loop sleeps`() throws {
        try inManualTime { loop, clock, trace in
            let first = loop.addPort(trace, prefix: "a") { _, _ in
                let made = loop.addPort(trace, prefix: "b") { port, message in
                    trace.add("@\(clock.ms)")
                    if message.id == 2 { port.invalidate() }
                }
                try! made.send(1, 2)
            }
            try first.send(1)
            #expect(loop.run(for: .milliseconds(5)) == .timedOut)
            #expect(trace.take() == "a1 b1 @0 b2 @0")
        }
    }

    @Test func `a nested run of another mode leaves the messages to the outer run`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource(forMode: .second)
            let other = loop.addPort(forMode: .second, trace, prefix: "other")
            let port = loop.addPort(trace) { port, message in
                guard message.id == 1 else { return }
                try! port.send(4)
                try! other.send(1)
                trace.add("(")
                #expect(loop.run(mode: .second, for: .milliseconds(1)) == .timedOut)
                trace.add(")")
            }
            trace.observe(loop)
            try port.send(1, 2, 3)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S 1 ( other1 ) 2 3 T S 4 T S W A X")
        }
    }

    @Test(arguments: Callout.allCases)
    func `a message sent before a nested run of another mode is delivered once, from every callout`(place: Callout) throws {
        try inManualTime { loop, clock, trace in
            let heard = Counter()
            loop.addIdleSource(forMode: .second)
            let port = RunLoop.Port { _, _ in heard.increment() }
            loop.add(port)
            try place.arrange(loop, clock, trace) {
                // The message is for the outer mode, but the nested run processes its notification.
                try! port.send(1)
                #expect(loop.run(mode: .second, for: .milliseconds(1)) == .timedOut)
            }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(heard.value == 1)
        }
    }

    @Test func `a port that a nested run invalidates delivers no more messages in the outer run`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let port = loop.addPort(trace) { port, message in
                if message.id == 1 { _ = loop.run(for: .zero, returnAfterSourceHandled: true) } else { port.invalidate() }
            }
            port.onInvalidation { trace.add("end") }
            try port.send(1, 2, 3)
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "1 2 end")
        }
    }
}
