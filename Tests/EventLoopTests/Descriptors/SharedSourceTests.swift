// A source in several loops (semantics 4.16):
//  - Its handler never runs on two threads at once.
//  - A one-shot source fires once in total, and once in total after each rearm.
//  - Every loop of a source serves it.
//  - A change of its events, and its end, reach its other loops before the caller's own loop calls out.

import EventLoopTestSupport
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory, .threads)) struct SharedSourceTests {
    private static func withLoops(_ count: Int, _ body: ([RunLoop]) throws -> Void) throws {
        let group = try RunLoopThreadGroup(count: count)
        defer { group.shutdown() }
        try body(group.runLoops)
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .edge])
    func `the handler of a descriptor in several loops never runs on two threads at once`(
        trigger: RunLoop.DescriptorSource.Trigger
    ) throws {
        try Self.withLoops(3) { loops in
            let pair = SocketPair()
            let inside = Box(0)
            let overlaps = Box(0)
            let calls = Box<[Int]>([0, 0, 0])
            let source = try RunLoop.DescriptorSource(descriptor: pair.near, events: [.read, .write], trigger: trigger) { _, _ in
                if inside.increment() > 1 { overlaps.increment() }
                for _ in 0..<20 { sched_yield() }
                let index = loops.firstIndex { $0.isCurrent }!
                calls.change { $0[index] += 1 }
                if trigger == .edge {
                    // Another arrival, for all three loops.
                    drain(pair.near)
                    pair.sendFromFar("x")
                }
                inside.change { $0 -= 1 }
            }
            for loop in loops { loop.add(source) }
            try waitUntil { calls.value.reduce(0, +) >= 300 }
            source.invalidate()
            #expect(overlaps.value == 0)
        }
    }

    @Test func `every loop serves a descriptor that is always ready`() throws {
        try Self.withLoops(2) { loops in
            let pipe = Pipe()
            pipe.write()
            let served = Box<Set<Int>>([])
            let source = try readSource(pipe) { _ in
                let index = loops.firstIndex { $0.isCurrent }!
                served.change { _ = $0.insert(index) }
                sched_yield()
            }
            for loop in loops { loop.add(source) }
            try waitUntil { served.value == [0, 1] }
            source.invalidate()
        }
    }

    @Test func `the perform of a custom source in several loops never runs on two threads at once`() throws {
        try Self.withLoops(2) { loops in
            let inside = Box(0)
            let overlaps = Box(0)
            let calls = Box(0)
            let source = RunLoop.CustomSource(perform: {
                if inside.increment() > 1 { overlaps.increment() }
                for _ in 0..<20 { sched_yield() }
                calls.increment()
                inside.change { $0 -= 1 }
            })
            for loop in loops { loop.add(source) }
            try waitUntil {
                source.signal()
                for loop in loops { loop.wakeUp() }
                return calls.value >= 200
            }
            source.invalidate()
            #expect(overlaps.value == 0)
        }
    }

    @Test func `a one-shot source in several loops fires once in total, and once in total after each rearm`() throws {
        try Self.withLoops(3) { loops in
            let pipe = Pipe()
            let calls = Box(0)
            let source = try readSource(pipe, trigger: .oneShot) { _ in calls.increment() }
            for loop in loops { loop.add(source) }
            func settle() throws {
                // Two passes of every loop: the second pass serves everything that was ready when the first began.
                for _ in 0..<2 { for loop in loops { try loop.performAndWait {} } }
            }
            pipe.write()
            var counts: [Int] = []
            for round in 1...50 {
                try waitUntil { calls.value >= round }
                try settle()
                counts.append(calls.value)
                source.rearm()
            }
            try waitUntil { calls.value >= 51 }
            source.invalidate()
            #expect(counts == Array(1...50))
        }
    }

    @Test func `a one-shot source in several modes of a loop fires once in total`() throws {
        let calls = try inManualTime { loop, _, _ in
            let calls = Box(0)
            let pipe = Pipe()
            let source = try readSource(pipe, trigger: .oneShot) { _ in calls.increment() }
            let modes: [RunLoop.Mode] = ["a", "b"]
            for mode in modes {
                loop.add(source, forMode: mode)
                _ = loop.run(mode: mode, for: .zero)
            }
            pipe.write()
            var counts: [Int] = []
            for _ in 0..<3 {
                for _ in 0..<2 { for mode in modes { _ = loop.run(mode: mode, for: .zero) } }
                counts.append(calls.value)
                source.rearm()
            }
            return counts
        }
        #expect(calls == [1, 2, 3])
    }

    /// 1. The caller's loop is the first of the source. Another thread has ended an item there, so the next change makes the item's last callout.
    /// 2. A callout may end the thread, so the other loop must have been given the change by then. It does not run meanwhile.
    @Test(arguments: [true, false])
    func `a change of events, and the end, reach the other loops before the caller's own loop calls out`(isEnd: Bool) throws {
        try onFreshThread { loop in
            let (pipe, unused) = (Pipe(), Pipe())
            let (source, ended) = (try readSource(pipe) { _ in }, try readSource(unused) { _ in })
            let (isAdded, mayEnd, found) = (Gate(), Gate(), Box<RunLoop?>(nil))
            // So that its end waits for the other loop.
            source.onInvalidation {}
            loop.add(source)
            loop.add(ended)
            let other = joinableThread { other in
                other.add(source)
                found.value = other
                isAdded.open()
                mayEnd.wait()
            }
            isAdded.wait()
            let changes = Box<[Int]>([])
            ended.onInvalidation {
                guard let other = found.value else { return }
                let count = other.shared.withLock { $0.changes.count }
                changes.change { $0.append(count) }
            }
            try plainThread { ended.invalidate() }.join()
            #expect(changes.value == [])
            if isEnd { source.invalidate() } else { source.events = [] }
            #expect(changes.value == [1])
            found.value = nil
            mayEnd.open()
            try other.join()
        }
    }

    @Test func `a source of two loops stays in one when the other ends`() throws {
        let pipe = Pipe()
        let calls = Box(0)
        let survivor = try RunLoopThread(name: "survivor")
        defer {
            survivor.stop()
            #expect(survivor.join(timeout: patience))
        }
        let ending = try RunLoopThread(name: "ending")
        let source = try readSource(pipe) { _ in
            pipe.readAll()
            calls.increment()
        }
        survivor.runLoop.add(source)
        ending.runLoop.add(source)
        try ending.runLoop.performAndWait {}
        ending.stop()
        #expect(ending.join(timeout: patience))
        pipe.write()
        try waitUntil { calls.value == 1 }
        #expect(source.isValid)
        source.invalidate()
    }
}
