// Rules proved here (LookupPool.swift):
// - Threads start on demand, up to the limit, and end when no request waits. Requests begin in order.
// - A request that waits can be cancelled, and then its body is not called. Requests beyond the limit are refused.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

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

@Suite struct LookupPoolTests {
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

    @Test func `a request that waits is cancelled, and one in progress goes on`() throws {
        let bodies = Bodies(threads: 1, waiting: 10)
        let running = bodies.start("a")
        try waitUntil { bodies.trace.description == "a" }
        let waiting = bodies.start("b")
        bodies.start("c")
        bodies.pool.cancel(waiting)
        bodies.pool.cancel(waiting)
        bodies.pool.cancel(running)
        #expect(bodies.pool.load == (1, 1))
        for name in ["a", "c"] { bodies.finish(name) }
        try bodies.waitUntilDone()
        #expect(bodies.trace.description == "a /a c /c")
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
