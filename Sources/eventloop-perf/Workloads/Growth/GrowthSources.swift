// Events of eventfds, of which one or all are always ready: each message goes back to the descriptor it was read from.

import CPerfPeers
import EventLoop

enum GrowthSources {
    /// The loop checks the descriptor of a source at its 1st, 2nd, 4th … serving. These are over before anything is measured.
    private static let warmup = 18

    static func make(_ size: Int) -> GrowthRig {
        let ring = OnLoop(perf_ring_make_of_events(Int32(size)))
        let loop = RunLoop.current
        let sources = (0..<Int32(size)).map { index in
            // The descriptor is open, so this does not throw.
            let source = try! RunLoop.DescriptorSource(descriptor: ring.pointer.pointee.reads[Int(index)], events: .read) { _, _ in
                if perf_ring_step(ring.pointer, index) { loop.stop() }
            }
            loop.add(source)
            return source
        }
        func serve(_ ops: Int) -> Int64 {
            ring.pointer.pointee.remaining = ops
            let start = perf_wall_ns()
            loop.run()
            return perf_wall_ns() - start
        }
        return GrowthRig { cost, ops in
            switch cost {
            case PERF_GROWTH_IDLE:
                perf_ring_activate(ring.pointer, 1)
                return serve(ops)
            case PERF_GROWTH_CHANGE:
                ring.pointer.pointee.remaining = .max
                return change(loop, sources, ops)
            default:
                if ring.pointer.pointee.active < size {
                    perf_ring_activate(ring.pointer, Int32(size))
                    _ = serve(warmup * size)
                }
                return serve(ops)
            }
        } end: {
            for source in sources { source.invalidate() }
            _ = loop.run(until: .distantPast)
            perf_ring_free(ring.pointer)
        }
    }

    private static func change(_ loop: RunLoop, _ sources: [RunLoop.DescriptorSource], _ ops: Int) -> Int64 {
        let some = sources.prefix(perf_growth_batch(sources.count))
        let start = perf_wall_ns()
        for _ in stride(from: 0, to: ops, by: some.count) {
            for source in some { loop.remove(source) }
            _ = loop.run(until: .distantPast)
            for source in some { loop.add(source) }
            _ = loop.run(until: .distantPast)
        }
        return perf_wall_ns() - start
    }
}
