// W15: a source that exists leaves the loop and joins it again. One operation is both. A pass of the loop after all of them is part of the
// time, so that nothing can be deferred. In `make` a source is made, added, invalidated and released, with a pass after each batch.

import CPerfPeers
import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

enum W15AddRemove {
    static let others = 100
    /// The sources that are made before the first of them is invalidated.
    static let batch = 100

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
                "W15.make", "make, add, invalidate and release a descriptor source", goals: [Goal("libevent", ratio: 2.0)],
                gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop", measure: makeSource),
                    Contender("libevent") { ops in
                        measuredInC(ops: ops) { peer_libevent_make_source(Int32(batch), ops, $0) }.rounded(to: batch)
                    },
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

    static func makeSource(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            // Without another source the mode would never run, and the kernel would never get these.
            let idle = IdleSource(on: loop)
            let descriptors = (0..<batch).map { _ in perf_idle_descriptor() }
            var sources: [RunLoop.DescriptorSource] = []
            sources.reserveCapacity(batch)
            _ = loop.run(until: .distantPast)
            meter.begin()
            for _ in stride(from: 0, to: ops, by: batch) {
                for descriptor in descriptors {
                    // It is open.
                    let source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }
                    loop.add(source)
                    sources.append(source)
                }
                for source in sources { source.invalidate() }
                sources.removeAll(keepingCapacity: true)
                _ = loop.run(until: .distantPast)
            }
            meter.end()
            idle.close()
            for descriptor in descriptors { close(descriptor) }
        }.rounded(to: batch)
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
