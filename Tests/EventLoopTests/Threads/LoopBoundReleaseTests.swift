// Rules proved here (semantics 9): while the thread of a loop can run code, it releases the values of LoopBound objects, whichever
// thread drops the objects. This also holds after stop() and while the loop ends. After the loop's thread has made its last callout, the
// thread that drops the object releases the value.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.threads)) struct `LoopBound releases its value on the loop's thread` {
    @Test func `a value dropped between stop and the end of the thread is released on the loop's thread`() throws {
        let released = Box<[Bool]>([])
        let (entered, mayGoOn) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "stopped")
        let loop = thread.runLoop
        loop.perform {
            entered.open()
            mayGoOn.wait()
        }
        entered.wait()
        var bound: LoopBound<ThreadCanary>? = LoopBound(ThreadCanary(loop, released), to: loop)
        thread.stop()
        #expect(!loop.perform {}, "the loop accepts nothing more")
        withExtendedLifetime(bound) {}
        bound = nil
        #expect(released.value == [])
        mayGoOn.open()
        #expect(thread.join(timeout: patience))
        #expect(released.value == [true])
    }

    @Test func `a value dropped during teardown is released on the loop's thread`() throws {
        try checkRelease { hold in try RunLoopThread(name: "teardown", teardown: { _ in hold() }) }
    }

    @Test func `a value dropped while the loop makes its last callouts is released on the loop's thread`() throws {
        try checkRelease { hold in
            try RunLoopThread(name: "last callouts") { loop in
                loop.add(RunLoop.CustomSource(cancel: { _, _ in hold() }, perform: {}))
            }
        }
    }

    @Test func `values dropped by other threads while the loop runs and ends are all released on its thread`() throws {
        for _ in 0..<20 / roundsDivisor {
            let released = Box<[Bool]>([])
            let thread = try RunLoopThread(name: "many")
            let loop = thread.runLoop
            let droppers = (0..<2).map { _ in
                plainThread { for _ in 0..<100 { _ = LoopBound(ThreadCanary(loop, released), to: loop) } }
            }
            for dropper in droppers { try dropper.join() }
            thread.stop()
            #expect(thread.join(timeout: patience))
            #expect(released.value == Array(repeating: true, count: 200))
        }
    }

    @Test func `at the loop's end, a value and the bound value that it holds are both released on the loop's thread`() throws {
        try checkRelease(count: 2) { hold in
            try RunLoopThread(name: "chain", teardown: { _ in hold() })
        } bind: { loop, released in
            LoopBound(Chain(loop, released, LoopBound(ThreadCanary(loop, released), to: loop)), to: loop)
        }
    }

    @Test func `a run inside the release of a value releases the values that were dropped with it`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            try plainThread { for number in 1...3 { _ = LoopBound(RunningValue(number, loop, trace), to: loop) } }.join()
            _ = loop.run(for: .zero)
            #expect(trace.take() == "1 2 3 (3) (2) (1)")
        }
    }

    @Test func `values that are dropped during the release of others are released in the next run`() throws {
        try onFreshThread { loop in
            let (rounds, released) = (10, Counter())
            try plainThread { dropTwo(rounds, loop, released) }.join()
            for round in 1...rounds {
                _ = loop.run(for: .zero)
                #expect(released.value == 2 * round)
            }
        }
    }

    private func checkRelease(thread: (@escaping @Sendable () -> Void) throws -> RunLoopThread) throws {
        try checkRelease(count: 1, thread: thread) { LoopBound(ThreadCanary($0, $1), to: $0) }
    }

    /// Drops a bound value while its loop's thread, which has been stopped, is in `hold`.
    private func checkRelease<Value>(
        count: Int, thread: (@escaping @Sendable () -> Void) throws -> RunLoopThread, bind: (RunLoop, Box<[Bool]>) -> LoopBound<Value>
    ) throws {
        let released = Box<[Bool]>([])
        let (entered, mayGoOn) = (Gate(), Gate())
        let thread = try thread {
            entered.open()
            mayGoOn.wait()
        }
        var bound: LoopBound<Value>? = bind(thread.runLoop, released)
        thread.stop()
        entered.wait()
        withExtendedLifetime(bound) {}
        bound = nil
        #expect(released.value == [])
        mayGoOn.open()
        #expect(thread.join(timeout: patience))
        #expect(released.value == Array(repeating: true, count: count))
    }
}

/// Records whether its loop's thread releases it.
private final class ThreadCanary {
    private let loop: RunLoop
    private let released: Box<[Bool]>

    init(_ loop: RunLoop, _ released: Box<[Bool]>) { (self.loop, self.released) = (loop, released) }

    deinit {
        let isOnLoop = loop.isCurrent
        released.change { $0.append(isOnLoop) }
    }
}

/// Records the same, and holds another bound value.
private final class Chain {
    private let canary: ThreadCanary
    private let inner: LoopBound<ThreadCanary>

    init(_ loop: RunLoop, _ released: Box<[Bool]>, _ inner: LoopBound<ThreadCanary>) {
        (canary, self.inner) = (ThreadCanary(loop, released), inner)
    }
}

/// Runs its loop while it is released.
private final class RunningValue {
    private let number: Int
    private let loop: RunLoop
    private let trace: Trace

    init(_ number: Int, _ loop: RunLoop, _ trace: Trace) { (self.number, self.loop, self.trace) = (number, loop, trace) }

    deinit {
        trace.add("\(number)")
        _ = loop.run(for: .zero)
        trace.add("(\(number))")
    }
}

/// Drops two values. With the second one's release, another thread drops the next two.
private func dropTwo(_ rounds: Int, _ loop: RunLoop, _ released: Counter) {
    for left in [0, rounds - 1] { _ = LoopBound(DroppingValue(left, loop, released), to: loop) }
}

private final class DroppingValue {
    private let rounds: Int
    private let loop: RunLoop
    private let released: Counter

    init(_ rounds: Int, _ loop: RunLoop, _ released: Counter) { (self.rounds, self.loop, self.released) = (rounds, loop, released) }

    deinit {
        released.increment()
        if rounds == 0 { return }
        try? plainThread { [rounds, loop, released] in dropTwo(rounds, loop, released) }.join()
    }
}
