// W2a: another thread signals a custom source, and wakes the loop. Several signals before a pass are one call of the handler, so the work
// is the signaling. One operation is one signal with its wake-up.

import CPerfPeers
import CoreFoundation
import EventLoop

enum W2aSignals {
    static var cases: [Case] {
        [
            Case(
                "W2a.signal.free", "signal a custom source and wake its running loop", amount: .upTo(1_000_000),
                goals: [Goal("cfrunloop", ratio: 0.15)],
                contenders: [
                    Contender("eventloop") { eventLoop($0, isHeld: false) },
                    Contender("cfrunloop", maximum: 200_000) { coreFoundation($0, isHeld: false) },
                ]),
            Case(
                "W2a.signal.held", "the same while the loop is in a handler", amount: .upTo(1_000_000),
                goals: [Goal("cfrunloop", ratio: 0.15)], gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop") { eventLoop($0, isHeld: true) },
                    Contender("cfrunloop", maximum: 200_000) { coreFoundation($0, isHeld: true) },
                ]),
        ]
    }

    /// Runs the signaling thread while the loop runs, or while `hold` keeps the loop in a handler.
    private static func measure(
        _ meter: Meter, _ gang: Gang, isHeld: Bool, hold: (@escaping @Sendable () -> Void) -> Void, run: () -> Void
    ) {
        if isHeld {
            hold {
                meter.begin()
                gang.open()
                gang.join()
                meter.end()
            }
            run()
        } else {
            meter.begin()
            gang.open()
            run()
            meter.end()
            gang.join()
        }
    }

    static func eventLoop(_ ops: Int, isHeld: Bool) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let countdown = OnLoop(perf_countdown_make(.max))
            defer { perf_countdown_free(countdown.pointer) }
            let source = RunLoop.CustomSource { _ = perf_countdown_hit(countdown.pointer) }
            loop.add(source)
            let gang = Gang(producers: 1, posts: ops) { signals in
                for _ in 0..<signals {
                    source.signal()
                    loop.wakeUp()
                }
                loop.perform { RunLoop.current.stop() }
            }
            measure(meter, gang, isHeld: isHeld, hold: { body in loop.perform(body) }, run: { loop.run() })
            source.invalidate()
        }
    }

    static func coreFoundation(_ ops: Int, isHeld: Bool) -> Measurement {
        measured(ops: ops) { meter in
            let loop = CF.Loop()
            let countdown = OnLoop(perf_countdown_make(.max))
            defer { perf_countdown_free(countdown.pointer) }
            let source = CF.Source { _ = perf_countdown_hit(countdown.pointer) }
            CFRunLoopAddSource(loop.loop, source.source, kCFRunLoopDefaultMode)
            let gang = Gang(producers: 1, posts: ops) { signals in
                for _ in 0..<signals {
                    source.signal()
                    loop.wakeUp()
                }
                loop.perform { CFRunLoopStop(CFRunLoopGetCurrent()) }
                loop.wakeUp()
            }
            measure(meter, gang, isHeld: isHeld, hold: { body in loop.perform(body) }, run: { CFRunLoopRun() })
            CFRunLoopSourceInvalidate(source.source)
        }
    }
}
