// W6: from a handler, a nested run in another mode that returns at once. Both modes have the same idle sources, whose number must not
// matter. One operation is one nested run.

import CPerfPeers
import CoreFoundation
import EventLoop
import Glibc

enum W6Nested {
    static let warmup = 1_000

    static var cases: [Case] {
        [10, 1_000, 9_000].map { idle in
            // This is above the noise; more than this would be a slope.
            let isSmallest = idle == 10
            return Case(
                "W6.s\(idle)", "a nested run in another mode, \(idle) idle sources",
                goals: (isSmallest ? [] : [Goal("eventloop-s10", ratio: 1.10)]) + [Goal("empty-wait", ratio: 1.2)],
                isHeavy: idle > 1_000, gated: idle > 1_000 ? [] : [.allocations, .systemCalls],
                contenders: [Contender("eventloop") { eventLoop(idle, $0) }]
                    + (isSmallest ? [] : [Contender("eventloop-s10") { eventLoop(10, $0) }]) + [
                        Contender("empty-wait") { ops in measuredInC(ops: ops) { peer_libevent_pass(true, warmup, ops, $0) } },
                        Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_nested(idle, warmup, ops, $0) } },
                        Contender("cfrunloop") { coreFoundation(idle, $0) },
                    ])
        }
    }

    static func eventLoop(_ idle: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let nested: RunLoop.Mode = "nested"
            let sources = (0..<idle).map { _ in IdleSource(on: loop, forModes: [.default, nested]) }
            let source = RunLoop.CustomSource {
                for _ in 0..<warmup { _ = loop.run(mode: nested, until: .distantPast) }
                meter.begin()
                for _ in 0..<ops { _ = loop.run(mode: nested, until: .distantPast) }
                meter.end()
            }
            loop.add(source)
            source.signal()
            _ = loop.run(until: .distantPast)
            source.invalidate()
            for source in sources { source.close() }
            _ = loop.run(until: .distantPast)
        }
    }

    static func coreFoundation(_ idle: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = CF.Loop()
            let descriptors = (0..<idle).map { _ in perf_idle_descriptor() }
            let sources = descriptors.map { CF.Port.source($0) {} }
            for source in sources {
                CFRunLoopAddSource(loop.loop, source, kCFRunLoopDefaultMode)
                CFRunLoopAddSource(loop.loop, source, CF.mode("nested"))
            }
            let custom = CF.Source {
                let nested = CF.mode("nested")
                for _ in 0..<warmup { CFRunLoopRunInMode(nested, 0, false) }
                meter.begin()
                for _ in 0..<ops { CFRunLoopRunInMode(nested, 0, false) }
                meter.end()
            }
            CFRunLoopAddSource(loop.loop, custom.source, kCFRunLoopDefaultMode)
            custom.signal()
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            CFRunLoopSourceInvalidate(custom.source)
            for source in sources { CFRunLoopSourceInvalidate(source) }
            for descriptor in descriptors { Glibc.close(descriptor) }
        }
    }
}
