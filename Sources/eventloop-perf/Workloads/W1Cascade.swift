// W1: messages circulate in a ring of pipes. One operation is one delivered event: a read of 8 bytes, and a write to the next pipe.

import CPerfPeers
import CoreFoundation
import Dispatch
import EventLoop

enum W1Cascade {
    /// Then each of 100 pipes has been served 70 times, and each of more pipes 18 times. The loop checks a source's descriptor at its 16th
    /// serving, its 32nd, its 64th and its 128th, so a counted run of 2,000 events contains no check.
    static func warmup(_ pipes: Int) -> Int { max(7_000, 18 * pipes) }

    /// The events that may take as many times libevent's.
    private static func goal(_ pipes: Int, _ active: Int) -> Double { active == 1 ? 1.10 : pipes == 100 ? 1.05 : 1.08 }

    /// The modes of the sources, and the other modes of the loop.
    enum Modes: Sendable {
        /// In the default mode, the only one.
        case one
        /// In the common modes, of which there are four; the three others have run, so the kernel watches for each of them.
        case fourThatHaveRun
        case fourNeverRun
    }

    static var cases: [Case] {
        var cases: [Case] = []
        for pipes in [100, 1_000, 9_900] {
            for active in [1, 100] {
                cases.append(
                    Case(
                        "W1.n\(pipes).a\(active)", "pipe cascade, \(pipes) pipes, \(active) active, an event",
                        goals: [Goal("libevent", ratio: goal(pipes, active)), Goal("cfrunloop", ratio: 0.40)],
                        isHeavy: pipes > 1_000, descriptors: 2 * pipes, gated: pipes == 100 ? [.allocations, .systemCalls] : [],
                        contenders: [
                            Contender("eventloop") { eventLoop(pipes, active, .one, $0) },
                            Contender("libevent") { libevent(pipes, active, $0) },
                            Contender("libevent-passes") { libeventInPasses(pipes, active, $0) },
                            Contender("cfrunloop") { coreFoundation(pipes, active, $0) },
                            Contender("dispatch", maximum: 200_000) { dispatch(pipes, active, $0) },
                        ]))
            }
        }
        for (name, modes, ratio) in [("run", Modes.fourThatHaveRun, 1.25), ("idle", .fourNeverRun, 1.02)] {
            for active in [1, 100] {
                cases.append(
                    Case(
                        "W1.n100.a\(active).modes-\(name)",
                        "the same in 4 common modes, 3 of them \(name == "run" ? "have run before" : "never run")",
                        goals: [Goal("one-mode", ratio: ratio)], gated: [.allocations, .systemCalls],
                        contenders: [
                            Contender("eventloop") { eventLoop(100, active, modes, $0) },
                            Contender("one-mode") { eventLoop(100, active, .one, $0) },
                            Contender("libevent") { libevent(100, active, $0) },
                        ]))
            }
        }
        return cases
    }

    static func eventLoop(
        _ pipes: Int, _ active: Int, _ modes: Modes, _ ops: Int, observing observation: LoopObservation = .none
    ) -> Measurement {
        measured(ops: ops) { meter in
            let ring = OnLoop(perf_ring_make(Int32(pipes), Int32(active)))
            defer { perf_ring_free(ring.pointer) }
            let loop = RunLoop.current
            let others: [RunLoop.Mode] = modes == .one ? [] : ["perf-1", "perf-2", "perf-3"]
            for mode in others { loop.addCommonMode(mode) }
            let sources = (0..<Int32(pipes)).map { index in
                // The pipe is open, so this does not throw.
                let source = try! RunLoop.DescriptorSource(descriptor: ring.pointer.pointee.reads[Int(index)], events: .read) { _, _ in
                    if perf_ring_step(ring.pointer, index) { loop.stop() }
                }
                loop.add(source, forMode: modes == .one ? .default : .common)
                return source
            }
            if modes == .fourThatHaveRun {
                for mode in others { _ = loop.run(mode: mode, until: .distantPast) }
            }
            observation.begin(loop)
            perf_ring_kick(ring.pointer)
            ring.pointer.pointee.remaining = warmup(pipes)
            loop.run()
            ring.pointer.pointee.remaining = ops
            meter.begin()
            loop.run()
            meter.end()
            for source in sources { source.invalidate() }
        }
    }

    static func libevent(_ pipes: Int, _ active: Int, _ ops: Int) -> Measurement {
        measuredInC(ops: ops) { peer_libevent_cascade(Int32(pipes), Int32(active), warmup(pipes), ops, $0) }
    }

    static func libeventInPasses(_ pipes: Int, _ active: Int, _ ops: Int) -> Measurement {
        measuredInC(ops: ops) { peer_libevent_cascade_in_passes(Int32(pipes), Int32(active), warmup(pipes), ops, $0) }
    }

    static func coreFoundation(_ pipes: Int, _ active: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let ring = OnLoop(perf_ring_make(Int32(pipes), Int32(active)))
            defer { perf_ring_free(ring.pointer) }
            let loop = CF.Loop()
            let sources = (0..<Int32(pipes)).map { index in
                // CFRunLoop has read the message already.
                let source = CF.Port.source(ring.pointer.pointee.reads[Int(index)]) {
                    if perf_ring_pass(ring.pointer, index) { loop.stop() }
                }
                CFRunLoopAddSource(loop.loop, source, kCFRunLoopDefaultMode)
                return source
            }
            perf_ring_kick(ring.pointer)
            ring.pointer.pointee.remaining = warmup(pipes)
            CFRunLoopRun()
            ring.pointer.pointee.remaining = ops
            meter.begin()
            CFRunLoopRun()
            meter.end()
            for source in sources { CFRunLoopSourceInvalidate(source) }
        }
    }

    static func dispatch(_ pipes: Int, _ active: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let ring = OnLoop(perf_ring_make(Int32(pipes), Int32(active)))
            defer { perf_ring_free(ring.pointer) }
            let queue = DispatchQueue(label: "cascade")
            let done = DispatchSemaphore(value: 0)
            let cancelled = DispatchGroup()
            let sources = (0..<Int32(pipes)).map { index in
                let source = DispatchSource.makeReadSource(fileDescriptor: ring.pointer.pointee.reads[Int(index)], queue: queue)
                source.setEventHandler { if perf_ring_step(ring.pointer, index) { done.signal() } }
                cancelled.enter()
                source.setCancelHandler { cancelled.leave() }
                source.activate()
                return source
            }
            ring.pointer.pointee.remaining = warmup(pipes)
            perf_ring_kick(ring.pointer)
            done.wait()
            meter.begin()
            queue.sync { ring.pointer.pointee.remaining = ops }
            done.wait()
            meter.end()
            for source in sources { source.cancel() }
            cancelled.wait()
        }
    }
}
