// Edge-triggered sources that share a descriptor with others in one mode (semantics 4.2, 4.7, 4.12; decision 15):
//  - Each source is notified of data that is already readable when it begins to watch: when it is added, when its `events` are set again,
//    or when it is removed and added.
//  - No source is notified of old data again when another source begins to watch or ends.
//  - A pending edge is not lost if another source's handler changes the source's `events`.
//
// libevent has one entry in the kernel's set for all events of a descriptor, so these sources once shared one edge.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct SharedEdgeTests {
    private typealias Events = RunLoop.DescriptorSource.Events

    /// The ways in which a second source begins to watch a descriptor that another source watches.
    enum Beginning: String, CaseIterable, CustomTestStringConvertible {
        case added, eventsSetAgain, removedAndAdded
        var testDescription: String { rawValue }
    }

    /// Makes `count` polling passes.
    private static func poll(_ loop: RunLoop, _ count: Int = 3) {
        for _ in 0..<count { _ = loop.run(for: .zero) }
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .edge, .oneShot], Beginning.allCases)
    func `an edge source that begins to watch a shared descriptor is notified of readable data, and causes no edge for the other source`(
        other: RunLoop.DescriptorSource.Trigger, beginning: Beginning
    ) throws {
        let (first, second) = try inManualTime { loop, _, _ in
            let (first, second) = (Box(0), Box(0))
            let pipe = Pipe()
            let firstSource = try readSource(pipe, trigger: other) { _ in first.increment() }
            let secondSource = try readSource(pipe, trigger: .edge) { _ in second.increment() }
            loop.add(firstSource)
            if beginning != .added { loop.add(secondSource) }
            Self.poll(loop)
            switch beginning {
            case .added: break
            case .eventsSetAgain: secondSource.events = []
            case .removedAndAdded: loop.remove(secondSource)
            }
            Self.poll(loop)
            pipe.write()
            Self.poll(loop)
            first.value = 0
            switch beginning {
            case .added, .removedAndAdded: loop.add(secondSource)
            case .eventsSetAgain: secondSource.events = .read
            }
            Self.poll(loop)
            return (first.value, second.value)
        }
        #expect(second == 1)
        #expect(first == (other == .level ? 3 : 0))
    }

    @Test func `the end of one edge source causes no edge for the other`() throws {
        let counts = try inManualTime { loop, _, _ in
            let counts = Box([0, 0])
            let pipe = Pipe()
            let sources = try [0, 1].map { index in
                try readSource(pipe, trigger: .edge) { _ in counts.change { $0[index] += 1 } }
            }
            for source in sources { loop.add(source) }
            pipe.write()
            Self.poll(loop)
            sources[0].invalidate()
            Self.poll(loop)
            pipe.write()
            Self.poll(loop)
            return counts.value
        }
        #expect(counts == [1, 2])
    }

    @Test(arguments: [0, 1])
    func `an edge is not lost if the other source's handler changes the source's events`(order: Int) throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let sources = Box<[RunLoop.DescriptorSource]>([])
            for index in 0..<2 {
                sources.change {
                    $0.append(
                        try! RunLoop.DescriptorSource(descriptor: pair.near, events: .read, trigger: .edge) { _, _ in  // it is a socket
                            trace.add("\(index)")
                            // The other source is ready in the same pass.
                            sources.value[1 - index].events = []
                            sources.value[1 - index].events = .read
                        })
                }
            }
            for source in order == 0 ? sources.value : sources.value.reversed() { loop.add(source) }
            pair.sendFromFar("x")
            Self.poll(loop, 1)
            let served = Set(trace.list)
            Self.poll(loop, 3)
            sources.value = []
            return withExtendedLifetime(pair) { "\(served.count) \(Set(trace.list).count)" }
        }
        #expect(trace == "1 2" || trace == "2 2")
    }

    @Test func `a reader and a writer with edges on one socket are each called once, for their own edge`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .read, trigger: .edge) { _, events in
                    trace.add("reader:\(describe(events))")
                })
            pair.sendFromFar("x")
            Self.poll(loop)
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .write, trigger: .edge) { _, events in
                    trace.add("writer:\(describe(events))")
                })
            Self.poll(loop)
            return withExtendedLifetime(pair) { trace.description }
        }
        #expect(trace == "reader:read writer:write")
    }
}
