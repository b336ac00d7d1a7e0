// Rules proved here:
// - A keep-alive token keeps its mode, and no other, from being empty until it is cancelled or released. Each token counts separately.
// - A token for the common modes keeps all of them from being empty, including modes that join later.
// - Cancelling the last token wakes a sleeping loop, whose run then returns `.finished`. (EmptinessTests proves this from every callout.)

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `A keep-alive token` {
    @Test func `keeps a run going to its limit`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let token = loop.keepAlive()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            token.cancel()
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `ends when it is released`() throws {
        try inManualTime { loop, _, _ in
            var token: RunLoop.KeepAlive? = loop.keepAlive()
            #expect(loop.run(for: .zero) == .timedOut)
            withExtendedLifetime(token) {}
            token = nil
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test func `is for one mode`() throws {
        try inManualTime { loop, _, _ in
            let token = loop.keepAlive(forMode: "kept")
            #expect(loop.run(for: .zero) == .finished)
            #expect(loop.run(mode: "kept", for: .zero) == .timedOut)
            token.cancel()
            #expect(loop.run(mode: "kept", for: .zero) == .finished)
        }
    }

    @Test func `for the common modes keeps all of them from being empty, including modes that join later`() throws {
        try inManualTime { loop, _, _ in
            loop.addCommonMode("early")
            let token = loop.keepAlive(forMode: .common)
            loop.addCommonMode("late")
            for mode in [RunLoop.Mode.default, "early", "late"] {
                #expect(loop.run(mode: mode, for: .zero) == .timedOut, "\(mode)")
            }
            #expect(loop.run(mode: "other", for: .zero) == .finished)
            token.cancel()
            for mode in [RunLoop.Mode.default, "early", "late"] {
                #expect(loop.run(mode: mode, for: .zero) == .finished, "\(mode)")
            }
        }
    }

    @Test func `counts separately from other tokens`() throws {
        try inManualTime { loop, _, _ in
            let (first, second) = (loop.keepAlive(), loop.keepAlive())
            first.cancel()
            first.cancel()
            #expect(loop.run(for: .zero) == .timedOut)
            second.cancel()
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test func `that is cancelled twice does not cancel another token`() throws {
        try inManualTime { loop, _, _ in
            let first = loop.keepAlive()
            first.cancel()
            let second = loop.keepAlive()
            defer { second.cancel() }
            first.cancel()
            #expect(loop.run(for: .zero) == .timedOut)
        }
    }

    @Test func `and a second token, both cancelled from another thread, end the run of a loop asleep or awake`() throws {
        let tokens = Box<[RunLoop.KeepAlive]>([])
        let ready = Gate()
        let thread = joinableThread { loop in
            tokens.value = [loop.keepAlive(), loop.keepAlive()]
            ready.open()
            return loop.run(for: patience)
        }
        ready.wait()
        let (first, second) = (tokens.value[0], tokens.value[1])
        tokens.value = []
        first.cancel()
        second.cancel()
        #expect(try thread.join() == .finished)
    }

    @Test func `may outlive its loop`() throws {
        let token = try onFreshThread { loop in loop.keepAlive() }
        token.cancel()
    }

    @Test func `of an ended loop is harmless`() throws {
        let loop = try onFreshThread { $0 }
        loop.keepAlive().cancel()
    }
}
