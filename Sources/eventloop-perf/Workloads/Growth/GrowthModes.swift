// Many modes, each of which has run; and many observers in one.

import CPerfPeers
import EventLoop

enum GrowthModes {
    static func make(_ size: Int) -> GrowthRig {
        let loop = RunLoop.current
        let modes = (0..<size).map { RunLoop.Mode("perf-\($0)") }
        let idle = modes.map { IdleSource(on: loop, forModes: [$0]) }
        let custom = modes.map { mode in
            let source = RunLoop.CustomSource {}
            loop.add(source, forMode: mode)
            return source
        }
        let ring = OnLoop(perf_ring_make_of_events(1))
        let common = try! RunLoop.DescriptorSource(descriptor: ring.pointer.pointee.reads[0], events: .read) { _, _ in  // it is open
            if perf_ring_step(ring.pointer, 0) { loop.stop() }
        }
        for mode in modes { _ = loop.run(mode: mode, until: .distantPast) }
        var isInAllModes = false
        return GrowthRig { cost, ops in
            if cost < 2 {
                let step = cost == 0 ? 0 : 1
                var index = 0
                return timed {
                    for _ in 0..<ops {
                        custom[index].signal()
                        _ = loop.run(mode: modes[index], until: .distantPast)
                        index += step
                        if index == size { index = 0 }
                    }
                }
            }
            if !isInAllModes {
                isInAllModes = true
                for mode in modes { loop.add(common, forMode: mode) }
                for mode in modes { _ = loop.run(mode: mode, until: .distantPast) }
                perf_ring_activate(ring.pointer, 1)
                // The first checks of its descriptor, at the 1st, 2nd, 4th … 128th serving, look at each of its modes.
                ring.pointer.pointee.remaining = 130
                _ = loop.run(mode: modes[0], until: .distantFuture)
            }
            ring.pointer.pointee.remaining = ops
            return timed { _ = loop.run(mode: modes[0], until: .distantFuture) }
        } end: {
            common.invalidate()
            for source in custom { source.invalidate() }
            for idle in idle { idle.close() }
            for mode in modes { _ = loop.run(mode: mode, until: .distantPast) }
            perf_ring_free(ring.pointer)
        }
    }
}

enum GrowthObservers {
    static func make(_ size: Int) -> GrowthRig {
        let loop = RunLoop.current
        let countdown = OnLoop(perf_countdown_make(.max))
        let idle = IdleSource(on: loop)
        let source = RunLoop.CustomSource {}
        loop.add(source)
        let all = (0..<size).map { _ in
            let observer = RunLoop.Observer(activities: .beforeSources) { _, _ in _ = perf_countdown_hit(countdown.pointer) }
            loop.add(observer)
            return observer
        }
        return GrowthRig { _, ops in
            timed {
                for _ in stride(from: 0, to: ops, by: size) {
                    source.signal()
                    _ = loop.run(until: .distantPast)
                }
            }
        } end: {
            for observer in all { observer.invalidate() }
            source.invalidate()
            idle.close()
            perf_countdown_free(countdown.pointer)
        }
    }
}
