// W8: the heap memory of an item while it lives, and the time of the smallest program from its start to its end.

import CPerfPeers
import CoreFoundation
import Dispatch
import EventLoop
import Foundation

enum W8Footprint {
    static var cases: [Case] {
        [
            Case(
                "W8.descriptor", "heap of a descriptor source, with the C library's own", metric: .heapBytes,
                amount: .fixed(full: 9_000, quick: 2_000), goals: [Goal("libevent", ratio: 2.1)], gated: [.allocations, .heap],
                contenders: [
                    Contender("eventloop", measure: descriptorSources),
                    Contender("libevent") { count in measuredInC(ops: count) { peer_libevent_hold_descriptors(count, $0) } },
                    Contender("cfrunloop", measure: coreFoundationPorts),
                    Contender("dispatch", measure: dispatchSources),
                ]),
            Case(
                "W8.timer", "heap of a timer", metric: .heapBytes, amount: .fixed(full: 100_000, quick: 10_000),
                goals: [Goal("libevent", ratio: 1.0)], gated: [.allocations, .heap],
                contenders: [
                    Contender("eventloop", measure: timers),
                    Contender("libevent") { count in measuredInC(ops: count) { peer_libevent_hold_timers(count, $0) } },
                    Contender("foundation", maximum: 10_000, measure: foundationTimers),
                ]),
            Case(
                "W8.loop", "heap of a loop that has run, on a thread of its own", metric: .heapBytes,
                amount: .fixed(full: 1_000, quick: 100), gated: [.allocations, .heap],
                contenders: [Contender("eventloop", measure: loops)]),
            Case(
                "W8.start", "a program with one timer, from its start to its end", metric: .value, amount: .fixed(full: 20, quick: 5),
                goals: [Goal("foundation", ratio: 0.6)],
                contenders: [
                    Contender("eventloop") { starts("eventloop-start", $0) },
                    Contender("libevent") { starts("eventloop-start-libevent", $0) },
                    Contender("foundation") { starts("eventloop-start-foundation", $0) },
                ]),
        ]
    }

    // MARK: Heap

    static func descriptorSources(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = RunLoop.current
            let descriptors = (0..<count).map { _ in perf_idle_descriptor() }
            var sources: [RunLoop.DescriptorSource] = []
            sources.reserveCapacity(count)
            meter.begin()
            for descriptor in descriptors {
                // It is open.
                let source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }
                loop.add(source)
                sources.append(source)
            }
            _ = loop.run(until: .distantPast)
            meter.end()
            for source in sources { source.invalidate() }
            _ = loop.run(until: .distantPast)
            for descriptor in descriptors { close(descriptor) }
        }
    }

    static func loops(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            var threads: [RunLoopThread] = []
            threads.reserveCapacity(count)
            meter.begin()
            for _ in 0..<count {
                let thread = try! RunLoopThread(name: "perf")  // fails only if the system has no more threads
                try! thread.runLoop.performAndWait {}
                threads.append(thread)
            }
            meter.end()
            for thread in threads { thread.stop() }
            for thread in threads { thread.join() }
        }
    }

    static func coreFoundationPorts(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = CF.Loop()
            let descriptors = (0..<count).map { _ in perf_idle_descriptor() }
            var sources: [CFRunLoopSource] = []
            sources.reserveCapacity(count)
            meter.begin()
            for descriptor in descriptors {
                let source = CF.Port.source(descriptor) {}
                CFRunLoopAddSource(loop.loop, source, kCFRunLoopDefaultMode)
                sources.append(source)
            }
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            meter.end()
            for source in sources { CFRunLoopSourceInvalidate(source) }
            for descriptor in descriptors { close(descriptor) }
        }
    }

    static func dispatchSources(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let queue = DispatchQueue(label: "footprint")
            let descriptors = (0..<count).map { _ in perf_idle_descriptor() }
            var sources: [any DispatchSourceRead] = []
            sources.reserveCapacity(count)
            let cancelled = DispatchGroup()
            meter.begin()
            for descriptor in descriptors {
                let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
                source.setEventHandler {}
                source.activate()
                sources.append(source)
            }
            queue.sync {}
            meter.end()
            for source in sources {
                cancelled.enter()
                source.setCancelHandler { cancelled.leave() }
                source.cancel()
            }
            cancelled.wait()
            for descriptor in descriptors { close(descriptor) }
        }
    }

    static func timers(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = RunLoop.current
            var random: UInt64 = 1
            let start = RunLoop.Instant.now.nanoseconds
            var timers: [RunLoop.Timer] = []
            timers.reserveCapacity(count)
            meter.begin()
            for _ in 0..<count {
                let timer = RunLoop.Timer(fireAt: RunLoop.Instant(nanoseconds: start + perf_random_delay(&random))) { _ in }
                loop.add(timer)
                timers.append(timer)
            }
            _ = loop.run(until: .distantPast)
            meter.end()
            for timer in timers { timer.invalidate() }
        }
    }

    static func foundationTimers(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = Foundation.RunLoop.current
            var random: UInt64 = 1
            let start = Date()
            var timers: [Foundation.Timer] = []
            timers.reserveCapacity(count)
            meter.begin()
            for _ in 0..<count {
                let date = start.addingTimeInterval(Double(perf_random_delay(&random)) / 1e9)
                let timer = Foundation.Timer(fire: date, interval: 0, repeats: false) { _ in }
                loop.add(timer, forMode: .default)
                timers.append(timer)
            }
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            meter.end()
            for timer in timers { timer.invalidate() }
        }
    }

    // MARK: Starting

    /// The programs are built beside this one (Sources/eventloop-start…).
    static func starts(_ program: String, _ count: Int) -> Measurement {
        let folder = Terminal.ownPath.split(separator: "/").dropLast().joined(separator: "/")
        let path = "/\(folder)/\(program)"
        var times: [Double] = []
        for _ in 0..<count {
            let nanoseconds = perf_start_and_wait_ns(path)
            guard nanoseconds > 0 else {
                Terminal.complain("\(path) does not start; build all products")
                return Measurement(ops: count)
            }
            times.append(Double(nanoseconds))
        }
        return Measurement(ops: count, value: Spread(times)?.median)
    }
}
