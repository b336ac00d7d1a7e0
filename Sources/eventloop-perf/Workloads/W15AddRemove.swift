// W15: a source that exists leaves the loop and joins it again. One operation is both. A pass of the loop after all of them is part of the
// time, so that nothing can be deferred.

import CPerfPeers
import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

enum W15AddRemove {
    static let others = 100

    static var cases: [Case] {
        [
            Case(
                "W15.source", "remove and add a descriptor source, beside \(others)", goals: [Goal("libevent", ratio: 2.0)],
                gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop", measure: descriptorSource),
                    Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_add_remove(Int32(others), ops, $0) } },
                ]),
            Case(
                "W15.custom", "remove and add a custom source", goals: [], gated: [.allocations],
                contenders: [Contender("eventloop", measure: customSource)]),
        ]
    }

    static func descriptorSource(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let descriptors = (0...others).map { _ in perf_idle_descriptor() }
            // They are open.
            let sources = descriptors.map { try! RunLoop.DescriptorSource(descriptor: $0, events: .read) { _, _ in } }
            for source in sources { loop.add(source) }
            _ = loop.run(until: .distantPast)
            let source = sources[others / 2]
            meter.begin()
            for _ in 0..<ops {
                loop.remove(source)
                loop.add(source)
            }
            _ = loop.run(until: .distantPast)
            meter.end()
            for source in sources { source.invalidate() }
            _ = loop.run(until: .distantPast)
            for descriptor in descriptors { close(descriptor) }
        }
    }

    static func customSource(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let source = RunLoop.CustomSource {}
            loop.add(source)
            meter.begin()
            for _ in 0..<ops {
                loop.remove(source)
                loop.add(source)
            }
            _ = loop.run(until: .distantPast)
            meter.end()
            source.invalidate()
        }
    }
}
