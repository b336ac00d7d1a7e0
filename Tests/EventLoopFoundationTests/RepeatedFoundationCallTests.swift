// The rule of RepeatedCallTests, for the Foundation forms of timers and performs.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

@Suite(.bounded, .serialized) struct RepeatedFoundationCallTests {
    enum Handler: String, CaseIterable, Codable, Sendable { case timer, perform }

    @Test(arguments: Handler.allCases)
    func `a later call goes through no more functions than an earlier one, and leaves no memory behind`(handler: Handler) async {
        // No other test allocates memory in this process.
        await #expect(processExitsWith: .success) { [handler] in
            let calls = RepeatedCalls()
            try inManualTime { loop, _, _ in
                if handler == .timer {
                    let timer = Timer(timeInterval: 0.001, repeats: true) { timer in
                        calls.note()
                        if calls.areEnough { timer.invalidate() }
                    }
                    loop.add(timer)
                    _ = loop.run(for: patience)
                } else {
                    calls.makePosted(on: loop) { _ = loop.perform(inModes: [.default], block: $0) }
                }
            }
            calls.expectNoGrowth()
        }
    }
}
