// Rules proved here (LookupPool.swift):
// - Threads start on demand, up to the limit, and end when no request waits. Requests begin in order.
// - Lookups of one name are shared. One whose callers have gone does not count, so it holds up nobody.
// - A request that waits can be cancelled, and then its body is not called. Requests beyond the limit are refused.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A pool, and requests whose bodies wait until they are released.
private final class Bodies: Sendable {
    let pool: LookupPool
    let trace = Trace()
    private let gates = Locked<[String: Gate]>([:])

    init(threads: Int, waiting: Int) { pool = LookupPool(threads: threads, waiting: waiting) }

    @discardableResult
    func start(_ name: String) -> LookupPool.Request {
        let gate = Gate()
        gates.withLock { $0[name] = gate }
        return pool.start {
            self.trace.add(name)
            gate.wait()
            self.trace.add("/" + name)
        } refuse: { refusal in
            self.trace.add("\(name): \(refusal)")
        }
    }

    func finish(_ name: String) { gates.withLock { $0[name]! }.open() }

    func waitUntilDone() throws { try waitUntil("the threads of the pool end") { pool.load == (0, 0) } }
}

@Suite(.tags(.threads)) struct LookupPoolTests {
    @Test func `requests beyond the number of threads wait, and begin in order`() throws {
        let bodies = Bodies(threads: 2, waiting: 10)
        bodies.start("a")
        try waitUntil { bodies.trace.description == "a" }
        bodies.start("b")
        try waitUntil { bodies.trace.description == "a b" }
        for name in ["c", "d", "e"] { bodies.start(name) }
        #expect(bodies.pool.load == (3, 2))
        bodies.finish("b")
        try waitUntil { bodies.trace.description == "a b /b c" }
        bodies.finish("c")
        try waitUntil { bodies.trace.description == "a b /b c /c d" }
        bodies.finish("d")
        try waitUntil { bodies.trace.description == "a b /b c /c d /d e" }
        #expect(bodies.pool.load == (0, 2))
        for name in ["e", "a"] { bodies.finish(name) }
        try bodies.waitUntilDone()
        // The pool works again.
        bodies.start("f")
        bodies.finish("f")
        try waitUntil { bodies.trace.list.suffix(2) == ["f", "/f"] }
        try bodies.waitUntilDone()
    }

    @Test func `a request that waits is cancelled, and one in progress goes on beside others`() throws {
        let bodies = Bodies(threads: 1, waiting: 10)
        let running = bodies.start("a")
        try waitUntil { bodies.trace.description == "a" }
        let waiting = bodies.start("b")
        bodies.start("c")
        bodies.pool.cancel(waiting)
        bodies.pool.cancel(waiting)
        bodies.pool.cancel(running)
        try waitUntil { bodies.trace.description == "a c" }
        #expect(bodies.pool.load == (0, 2))
        bodies.finish("a")
        try waitUntil { bodies.pool.load == (0, 1) }
        bodies.finish("c")
        try bodies.waitUntilDone()
        #expect(bodies.trace.description == "a c /a /c")
    }

    @Test func `requests beyond the limit are refused, and there is room again when one is cancelled`() throws {
        let bodies = Bodies(threads: 1, waiting: 2)
        bodies.start("a")
        try waitUntil { bodies.trace.description == "a" }
        let waiting = bodies.start("b")
        bodies.start("c")
        bodies.start("d")
        #expect(bodies.trace.take() == "a d: 2 other lookups wait already")
        bodies.pool.cancel(waiting)
        bodies.start("e")
        for name in ["a", "c", "e"] { bodies.finish(name) }
        try bodies.waitUntilDone()
        #expect(bodies.trace.take() == "/a c /c e /e")
    }

    @Test func `the threads block all signals but those that report a fault`() throws {
        let (pool, blocked) = (LookupPool(threads: 1, waiting: 0), Box<Set<Int32>?>(nil))
        pool.start {
            blocked.value = blockedSignals()
        } refuse: { _ in
        }
        try waitUntil { blocked.value != nil && pool.load == (0, 0) }
        let all = try #require(blocked.value)
        #expect(all.isSuperset(of: [SIGTERM, SIGURG, SIGUSR1]) && all.isDisjoint(with: faultSignals), "\(all)")
    }

    @Test func `lookups of one name that are in flight are one, and each caller gets its answer`() throws {
        let (pool, runs, answers, gate) = (LookupPool(threads: 2, waiting: 10), Box(0), Box(0), Gate())
        let ask = {
            pool.lookUp("one.example") {
                runs.increment()
                gate.wait()
                return .success([.ipv4(host: "192.0.2.1", port: 0)])
            } _: { answer in
                if case .success = answer { answers.increment() }
            }
        }
        let cancels = (0..<40).map { _ in ask() }
        cancels[0]()
        gate.open()
        try waitUntil { answers.value == 39 && pool.load == (0, 0) }
        #expect(runs.value == 1)
        cancels[1]()
        #expect(answers.value == 39)
    }

    @Test func `a lookup that begins while an earlier one of its name is refused is the one that its caller cancels`() throws {
        let (pool, busy, slow) = (LookupPool(threads: 1, waiting: 0), Gate(), Gate())
        let (runs, later) = (Box(0), Box(0))
        let cancel = Box<(@Sendable () -> Void)?>(nil)
        pool.start {
            busy.wait()
        } refuse: { _ in
        }
        _ = pool.lookUp("one.example") {
            .success([])
        } _: { _ in
            // The refusal. The pool becomes free before it returns.
            busy.open()
            try? waitUntil { pool.load == (0, 0) }
            cancel.value = pool.lookUp("one.example") {
                runs.increment()
                slow.wait()
                return .success([])
            } _: { _ in
            }
        }
        try waitUntil { runs.value == 1 }
        cancel.value?()
        pool.start {
            later.increment()
        } refuse: { _ in
        }
        try waitUntil { later.value == 1 }
        slow.open()
        try waitUntil { pool.load == (0, 0) }
    }

    @Test func `lookups that nobody waits for any more hold up nobody`() throws {
        let bodies = Bodies(threads: 2, waiting: 10)
        let abandoned = ["a", "b"].map { bodies.start($0) }
        try waitUntil { bodies.trace.list.count == 2 }
        bodies.start("c")
        #expect(bodies.pool.load == (1, 2))
        bodies.pool.cancel(abandoned[0])
        bodies.pool.cancel(abandoned[0])
        try waitUntil { bodies.trace.list.last == "c" }
        bodies.pool.cancel(abandoned[1])
        bodies.start("d")
        try waitUntil { bodies.trace.list.last == "d" }
        for name in ["a", "b", "c", "d"] { bodies.finish(name) }
        try bodies.waitUntilDone()
    }

    @Test func `a name that nobody answers delays no other, and a later asker shares an abandoned lookup`() throws {
        let (pool, gate, slow) = (LookupPool.shared, Gate(), Box(0))
        let cancels = (0..<20).map { index in
            pool.lookUp("slow\(index).invalid") {
                slow.increment()
                gate.wait()
                return .failure(.nameServiceFailed(host: "", reason: ""))
            } _: { _ in
            }
        }
        try waitUntil { slow.value == 20 }
        let found = Box(false)
        _ = pool.lookUp("localhost") {
            SystemLookup.run("localhost")
        } _: { answer in
            if case .success = answer { found.value = true }
        }
        try waitUntil { found.value }
        for cancel in cancels { cancel() }
        let isAnswered = Box(false)
        _ = pool.lookUp("slow3.invalid") {
            .success([])
        } _: {
            isAnswered.value = $0 != .success([])
        }
        gate.open()
        try waitUntil { isAnswered.value }
    }

    @Test func `a flood from several threads runs every request once, and never more at once than there are threads`() throws {
        let pool = LookupPool(threads: 4, waiting: 100_000)
        let (running, highest, done) = (Box(0), Box(0), Box(0))
        let threads = (0..<4).map { _ in
            plainThread {
                for _ in 0..<500 {
                    pool.start {
                        let count = running.increment()
                        highest.change { $0 = max($0, count) }
                        breathe()
                        running.change { $0 -= 1 }
                        done.increment()
                    } refuse: { _ in
                        Issue.record("refused")
                    }
                }
            }
        }
        for thread in threads { try thread.join() }
        try waitUntil { done.value == 2_000 && pool.load == (0, 0) }
        #expect(highest.value <= 4)
    }
}
