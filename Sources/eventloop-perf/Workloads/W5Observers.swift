// W5: the cost of an observer in a pass that it observes. The passes are those of W4, in one mode with observers and in one without. A
// figure is the difference for one observer.

import CPerfPeers
import CoreFoundation
import EventLoop

enum W5Observers {
    static let observers = 100
    static let chunks = 10

    static var cases: [Case] {
        [
            Case(
                "W5.observer", "an observer, a pass that it hears (1 of \(observers))", metric: .value, amount: .upTo(200_000),
                goals: [Goal("libuv", ratio: 2.0)], gated: [.allocations],
                contenders: [
                    Contender("eventloop", measure: eventLoop),
                    Contender("function-pointer", measure: functionPointers),
                    Contender("cfrunloop", measure: coreFoundation),
                ])
        ]
    }

    /// Alternates passes without and with observers, so that both share the machine's good and bad moments.
    static func difference(_ meter: Meter, ops: Int, without: () -> Void, with: () -> Void) {
        let plain = Meter.ignored()
        defer { plain.sample.deallocate() }
        for round in 0...chunks {
            if round > 0 { plain.begin() }
            for _ in 0..<ops / chunks { without() }
            if round > 0 { plain.end() }
            if round > 0 { meter.begin() }
            for _ in 0..<ops / chunks { with() }
            if round > 0 { meter.end() }
        }
        meter.sample.pointee.wall_ns -= plain.sample.pointee.wall_ns
    }

    static func perObserver(_ measurement: Measurement) -> Measurement {
        var result = measurement
        result.value = Double(measurement.sample.wall_ns) / Double(measurement.ops) / Double(observers)
        return result
    }

    static func eventLoop(_ ops: Int) -> Measurement {
        perObserver(
            measured(ops: ops) { meter in
                let loop = RunLoop.current
                let countdown = OnLoop(perf_countdown_make(.max))
                defer { perf_countdown_free(countdown.pointer) }
                let heard: RunLoop.Mode = "heard"
                let idle = IdleSource(on: loop, forModes: [.default, heard])
                let source = RunLoop.CustomSource {}
                loop.add(source)
                loop.add(source, forMode: heard)
                let all = (0..<observers).map { _ in
                    RunLoop.Observer(activities: .beforeSources) { _, _ in _ = perf_countdown_hit(countdown.pointer) }
                }
                for observer in all { loop.add(observer, forMode: heard) }
                difference(meter, ops: ops) {
                    source.signal()
                    _ = loop.run(until: .distantPast)
                } with: {
                    source.signal()
                    _ = loop.run(mode: heard, until: .distantPast)
                }
                for observer in all { observer.invalidate() }
                source.invalidate()
                idle.close()
            })
    }

    static func functionPointers(_ ops: Int) -> Measurement {
        perObserver(measuredInC(ops: ops) { peer_function_pointers(Int32(observers), ops, $0) })
    }

    static func coreFoundation(_ ops: Int) -> Measurement {
        perObserver(
            measured(ops: ops) { meter in
                let loop = CF.Loop()
                let countdown = OnLoop(perf_countdown_make(.max))
                defer { perf_countdown_free(countdown.pointer) }
                let heard = CF.mode("heard")
                let source = CF.Source {}
                CFRunLoopAddSource(loop.loop, source.source, kCFRunLoopDefaultMode)
                CFRunLoopAddSource(loop.loop, source.source, heard)
                for _ in 0..<observers {
                    let observer = CFRunLoopObserverCreateWithHandler(nil, CFRunLoopActivity.beforeSources.rawValue, true, 0) { _, _ in
                        _ = perf_countdown_hit(countdown.pointer)
                    }
                    CFRunLoopAddObserver(loop.loop, observer, heard)
                }
                difference(meter, ops: ops) {
                    source.signal()
                    CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
                } with: {
                    source.signal()
                    CFRunLoopRunInMode(heard, 0, false)
                }
                CFRunLoopSourceInvalidate(source.source)
            })
    }
}
