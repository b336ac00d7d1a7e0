// W4: one pass that serves one signaled custom source, without waiting. One operation is the signal and the pass.

import CPerfPeers
import CoreFoundation
import EventLoop
import Glibc

enum W4Pass {
    static let warmup = 1_000

    static var cases: [Case] {
        [
            Case(
                "W4.pass", "a signal, and one pass that serves it",
                goals: [Goal("libevent", ratio: 1.15), Goal("cfrunloop", ratio: 0.20)], gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop", measure: eventLoop),
                    Contender("libevent", measure: libevent),
                    Contender("cfrunloop", measure: coreFoundation),
                ]),
            Case(
                "W4.turn", "the same inside one long run, the source signalling itself",
                gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop") { eventLoopTurns($0) },
                    Contender("libevent", measure: libevent),
                    Contender("cfrunloop", measure: coreFoundationTurns),
                ]),
        ]
    }

    static func eventLoop(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let countdown = OnLoop(perf_countdown_make(.max))
            defer { perf_countdown_free(countdown.pointer) }
            let idle = IdleSource(on: loop)
            let source = RunLoop.CustomSource { _ = perf_countdown_hit(countdown.pointer) }
            loop.add(source)
            for _ in 0..<warmup {
                source.signal()
                _ = loop.run(until: .distantPast)
            }
            meter.begin()
            for _ in 0..<ops {
                source.signal()
                _ = loop.run(until: .distantPast)
            }
            meter.end()
            precondition(countdown.pointer.pointee.remaining == .max - warmup - ops, "every signal was served")
            source.invalidate()
            idle.close()
        }
    }

    static func eventLoopTurns(_ ops: Int, observing: LoopObservation = .none) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            observing.begin(loop)
            let countdown = OnLoop(perf_countdown_make(warmup))
            defer { perf_countdown_free(countdown.pointer) }
            let idle = IdleSource(on: loop)
            let itself = SelfReference()
            let source = RunLoop.CustomSource {
                if perf_countdown_hit(countdown.pointer) { loop.stop() } else { itself.source.signal() }
            }
            itself.source = source
            loop.add(source)
            source.signal()
            loop.run()
            countdown.pointer.pointee.remaining = ops
            meter.begin()
            source.signal()
            loop.run()
            meter.end()
            source.invalidate()
            itself.source = nil
            idle.close()
        }
    }

    static func libevent(_ ops: Int) -> Measurement {
        measuredInC(ops: ops) { peer_libevent_pass(false, warmup, ops, $0) }
    }

    static func coreFoundation(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let countdown = OnLoop(perf_countdown_make(.max))
            defer { perf_countdown_free(countdown.pointer) }
            let source = CF.Source { _ = perf_countdown_hit(countdown.pointer) }
            CFRunLoopAddSource(CFRunLoopGetCurrent(), source.source, kCFRunLoopDefaultMode)
            for _ in 0..<warmup {
                source.signal()
                CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            }
            meter.begin()
            for _ in 0..<ops {
                source.signal()
                CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            }
            meter.end()
            CFRunLoopSourceInvalidate(source.source)
        }
    }

    static func coreFoundationTurns(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = CF.Loop()
            let countdown = OnLoop(perf_countdown_make(warmup))
            defer { perf_countdown_free(countdown.pointer) }
            let itself = SelfReference()
            let source = CF.Source {
                if perf_countdown_hit(countdown.pointer) { loop.stop() } else { itself.cfSource.signal() }
            }
            itself.cfSource = source
            CFRunLoopAddSource(loop.loop, source.source, kCFRunLoopDefaultMode)
            source.signal()
            CFRunLoopRun()
            countdown.pointer.pointee.remaining = ops
            meter.begin()
            source.signal()
            CFRunLoopRun()
            meter.end()
            CFRunLoopSourceInvalidate(source.source)
            itself.cfSource = nil
        }
    }
}

/// A handler's reference to its own source.
final class SelfReference: @unchecked Sendable {
    // SAFETY: set before the source is added and after it is invalid, on the loop's thread; only that thread runs the handler.
    var source: RunLoop.CustomSource!
    var cfSource: CF.Source!
}

/// A descriptor that is never ready: every real loop watches something.
struct IdleSource {
    private let descriptor: Int32
    private let source: RunLoop.DescriptorSource

    init(on loop: RunLoop, forModes modes: [RunLoop.Mode] = [.default]) {
        descriptor = perf_idle_descriptor()
        source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }  // it is open
        for mode in modes { loop.add(source, forMode: mode) }
    }

    /// The loop removes an invalid source's descriptor in its next pass at the latest, so wait for that.
    func close() {
        source.onInvalidation { [descriptor] in _ = Glibc.close(descriptor) }
        source.invalidate()
    }
}
