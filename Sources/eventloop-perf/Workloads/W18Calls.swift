// W18: calls that other workloads have no place for: runs that serve one of many ready descriptors, calls from tasks, closures for several
// modes, and a loop with a thousand modes.

import CPerfPeers
import EventLoop
import Glibc

enum W18Calls {
    static let warmup = 1_000

    static var cases: [Case] {
        [4, 256].map { ready in
            Case(
                "W18.single\(ready)", "a run that serves one of \(ready) ready pipes", gated: [.allocations, .systemCalls],
                contenders: [Contender("eventloop") { single(ready, $0) }])
        } + [
            Case(
                "W18.async", "performAsync, from a task of the global pool", amount: .upTo(50_000),
                contenders: [
                    Contender("eventloop", measure: performAsync),
                    Contender("continuation", measure: performAndResume),
                    Contender("actor") { W9ActorCalls.calls($0, prefersLoop: false) },
                ]),
            Case(
                "W18.modes3", "a closure for three modes is queued and performed", gated: [.allocations, .systemCalls],
                contenders: [Contender("eventloop", measure: performInThreeModes)]),
        ]
            + [10, 1_000].map { modes in
                Case(
                    "W18.pass.m\(modes)", "a signal, and a pass of the last of \(modes) modes", gated: [.allocations, .systemCalls],
                    contenders: [Contender("eventloop") { pass(modes, $0) }])
            }
    }

    /// Each handler reads its pipe and makes it ready again, so that all are always ready.
    private static func single(_ ready: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            var sources: [RunLoop.DescriptorSource] = []
            for _ in 0..<ready {
                var ends: [Int32] = [-1, -1]
                precondition(pipe(&ends) == 0, "a pipe was refused: errno \(errno)")
                let (readEnd, writeEnd) = (ends[0], ends[1])
                let source = try! RunLoop.DescriptorSource(descriptor: readEnd, events: .read) { _, _ in  // it is open
                    var byte: UInt8 = 0
                    precondition(Glibc.read(readEnd, &byte, 1) == 1 && Glibc.write(writeEnd, &byte, 1) == 1, "the pipe was not ready")
                }
                source.onInvalidation {
                    Glibc.close(readEnd)
                    Glibc.close(writeEnd)
                }
                var byte: UInt8 = 0
                precondition(Glibc.write(writeEnd, &byte, 1) == 1, "a pipe has no room")
                loop.add(source)
                sources.append(source)
            }
            func serve(_ times: Int) {
                for _ in 0..<times {
                    let result = loop.run(until: .distantPast, returnAfterSourceHandled: true)
                    precondition(result == .handledSource, "a run found nothing")
                }
            }
            serve(max(warmup, 80 * ready))
            meter.begin()
            serve(ops)
            meter.end()
            for source in sources { source.invalidate() }
            _ = loop.run(until: .distantPast)
        }
    }

    private static func performAsync(_ ops: Int) -> Measurement {
        callsOfTask(ops) { loop, times in
            for number in 0..<times {
                let result = try! await loop.performAsync { number + 1 }  // the loop does not end meanwhile
                precondition(result == number + 1, "a call returned another one's value")
            }
        }
    }

    /// The floor: a closure that resumes the task. Nothing can cancel it, and the end of the loop would leave the task suspended.
    private static func performAndResume(_ ops: Int) -> Measurement {
        callsOfTask(ops) { loop, times in
            for number in 0..<times {
                let result = await withUnsafeContinuation { continuation in
                    _ = loop.perform { continuation.resume(returning: number + 1) }
                }
                precondition(result == number + 1, "a call returned another one's value")
            }
        }
    }

    private static func callsOfTask(_ ops: Int, _ calls: @escaping @Sendable (RunLoop, _ times: Int) async -> Void) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            func call(_ times: Int) {
                Task.detached {
                    await calls(loop, times)
                    loop.stop(sticky: true)
                }
                while loop.run(for: .seconds(60)) != .stopped {}  // ends: with the last call
            }
            call(100)
            meter.begin()
            call(ops)
            meter.end()
        }
    }

    private static func performInThreeModes(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let countdown = OnLoop(perf_countdown_make(.max))
            defer { perf_countdown_free(countdown.pointer) }
            let modes: [RunLoop.Mode] = [.default, "one", "two"]
            func perform(_ times: Int) {
                for _ in 0..<times {
                    loop.perform(inModes: modes) { _ = perf_countdown_hit(countdown.pointer) }
                    _ = loop.run(until: .distantPast)
                }
            }
            perform(warmup)
            meter.begin()
            perform(ops)
            meter.end()
            precondition(countdown.pointer.pointee.remaining == .max - warmup - ops, "every closure was performed")
        }
    }

    /// The other modes have an item each, and are never run.
    private static func pass(_ modes: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let others = (1..<modes).map { loop.keepAlive(forMode: RunLoop.Mode("mode \($0)")) }
            let idle = IdleSource(on: loop, forModes: ["last"])
            let countdown = OnLoop(perf_countdown_make(.max))
            defer { perf_countdown_free(countdown.pointer) }
            let source = RunLoop.CustomSource { _ = perf_countdown_hit(countdown.pointer) }
            loop.add(source, forMode: "last")
            func serve(_ times: Int) {
                for _ in 0..<times {
                    source.signal()
                    _ = loop.run(mode: "last", until: .distantPast)
                }
            }
            serve(warmup)
            meter.begin()
            serve(ops)
            meter.end()
            source.invalidate()
            idle.close()
            _ = loop.run(mode: "last", until: .distantPast)
            for other in others { other.cancel() }
        }
    }
}
