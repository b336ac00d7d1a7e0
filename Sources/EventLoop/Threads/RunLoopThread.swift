internal import CPlatform
internal import EventLoopLibC

/// A thread whose only work is its run loop. It runs the loop in `.default` until `stop()`.
///
/// Releasing the object does not end the thread. Thread-safe.
public final class RunLoopThread: Sendable {
    /// For `debugDescription`, warnings, and the system, which cuts it if it is too long.
    public let name: String
    /// The thread's loop, which is ready when `init` returns.
    public let runLoop: RunLoop
    private let life: ThreadLife
    /// How long a stopped thread waits for its holds if the caller does not say.
    public static let defaultDrainLimit: Duration = .seconds(30)

    /// Starts the thread, and returns when its loop is ready.
    ///
    /// `setup` runs first on the thread. If it throws, the thread ends, and this initializer throws the same error. `teardown` runs last, before the
    /// loop ends. Throws `SourceError.system` if the system has no threads or descriptors left. `stackSize`: in bytes; nil is the system's default.
    public convenience init(
        name: String, stackSize: Int? = nil,
        setup: (@Sendable (RunLoop) throws -> Void)? = nil, teardown: (@Sendable (RunLoop) -> Void)? = nil
    ) throws { /* DOES CALLOUT */
        try self.init(name: name, stackSize: stackSize, drainLimit: Self.defaultDrainLimit) { loop in
            try setup?(loop)
            return ThreadStages(teardown: teardown)
        }
    }

    /// Starts a thread that hosts what must be freed on it in order: a C library on the loop's base. As `init(name:stackSize:setup:teardown:)`.
    ///
    /// `setup` makes it and returns it as the context, which stays on the thread and need not be Sendable. After `stop()`, on the thread:
    ///
    /// 1. Every run in progress ends.
    /// 2. `drain` is called with the context, to let nothing new in: close the listener, for example.
    /// 3. The loop runs again, and accepts work, until every hold (`hold()`) is released or `drainLimit` has passed in the loop's time.
    /// 4. The loop refuses work. It performs what it accepted in one last batch, and makes one pass without a sleep.
    /// 5. `teardown` is called with the context, to free it. Then the loop ends.
    ///
    /// With neither `drain` nor a hold at `stop()`, steps 2, 3 and the pass of 4 are left out. If `setup` throws, so are `drain` and `teardown`.
    public convenience init<Context>(
        name: String, stackSize: Int? = nil, drainLimit: Duration = RunLoopThread.defaultDrainLimit,
        setup: @escaping @Sendable (RunLoop) throws -> Context,
        drain: (@Sendable (RunLoop, Context) -> Void)? = nil,
        teardown: @escaping @Sendable (RunLoop, Context) -> Void
    ) throws { /* DOES CALLOUT */
        try self.init(name: name, stackSize: stackSize, drainLimit: drainLimit) { loop in
            let context = try setup(loop)
            return ThreadStages(drain: drain.map { drain in { drain($0, context) } }, teardown: { teardown($0, context) })
        }
    }

    private init(
        name: String, stackSize: Int?, drainLimit: Duration, _ setup: @escaping @Sendable (RunLoop) throws -> ThreadStages
    ) throws { /* DOES CALLOUT */
        self.name = name
        life = ThreadLife(name: name, drainLimit: drainLimit, setup: setup)
        try life.start(stackSize: stackSize)
        _ = life.started.wait(until: nil)
        let outcome = life.outcome.withLock { $0.take()! }  // the latch opens when there is one
        if case .failure = outcome { _ = life.ended.wait(until: nil) }
        runLoop = try outcome.get()
    }

    /// Ends the thread after the pass in progress, however early it is called. The thread first drains, if it has a `drain` closure or holds. It
    /// still performs everything that its loop accepted earlier, in one last batch before `teardown`; from then on the loop accepts nothing more.
    /// No-op if called before. Thread-safe. (`runLoop.stop()` only ends a run; then the thread runs its loop again.)
    public func stop() { runLoop.requestEnd() }

    /// As `stop()`, but waits for holds at most `limit` of the loop's time; zero or less: for none. Called again, shortens the wait. Thread-safe.
    public func stop(drainingFor limit: Duration) {
        // By the thread itself, so that several calls leave the shortest limit. Refused if there is nothing to drain any more.
        let shorten: @Sendable () -> Void = { [life] in life.shortenDraining(to: limit) }
        _ = runLoop.enqueueClosure(.perform, RunLoop.Mode.onlyCommon, shorten, CreationSite(#fileID, #line))
        stop()
    }

    var threadEnd: ThreadEnd { life.ended }

    /// Blocks until the thread has ended. Returns false if `timeout` (real time) passes first. On the thread itself, it is a precondition failure.
    ///
    /// The compiler prefers the form that suspends in async functions. In the top-level code of `main.swift` it takes this one, even behind `await`,
    /// so it must be allowed there; it warns then, and the main thread waits.
    @discardableResult
    public func join(timeout: Duration? = nil) -> Bool {
        precondition(!runLoop.isCurrent, "a run loop thread cannot join itself; call join from another thread, or stop() to end this one")
        return threadEnd.wait(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }

    /// Suspends the task until the thread has ended. Returns false if `timeout` (real time) passes or the task is cancelled first.
    ///
    /// Any number of tasks may wait; none occupies a thread. Those on the thread's own loop resume on the thread for ended loops. Thread-safe.
    @discardableResult
    public func join(timeout: Duration? = nil) async -> Bool {
        await threadEnd.suspend(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }
}

/// What is left to do on a stopping thread. It stays there, and with it the context of the closures.
private struct ThreadStages {
    var drain: ((RunLoop) -> Void)?
    var teardown: ((RunLoop) -> Void)?
}

/// State that the detached thread and its handle share: both retain it. `ended` is the thread's last visible action.
private final class ThreadLife: Sendable {
    let name: String
    let started = Latch()
    let ended = ThreadEnd()
    let outcome = LoopLock<Result<RunLoop, any Error>?>(nil)
    private let setup: HandlerSlot<@Sendable (RunLoop) throws -> ThreadStages>
    /// The timer expires when the limit has passed. Nil before the thread waits for holds, and after. Changed on the thread only.
    private let drainLimit: LoopLock<(duration: Duration, timer: RunLoop.Timer?)>

    init(name: String, drainLimit: Duration, setup: @escaping @Sendable (RunLoop) throws -> ThreadStages) {
        self.name = name
        self.drainLimit = LoopLock((duration: drainLimit, timer: nil))
        self.setup = HandlerSlot(setup)
    }

    func start(stackSize: Int?) throws {
        let code = NativeThread.start(stackSize: stackSize) { [self] in /* DOES CALLOUT */
            cplatform_name_this_thread(name)
            run()
            LoopLifetime.endLoopOfThisThread()
        }
        if code == 0 { return }
        let stack = stackSize.map { " with a stack of \($0) bytes" } ?? ""
        throw RunLoop.SourceError.system(operation: "starting a thread" + stack, errno: code)
    }

    /// Also if the thread ends inside a handler.
    private func end() {
        if !started.wait(until: .distantPast) { begin(.failure(RunLoopEnded())) }  // it may have ended in its setup
        ended.come()
    }

    private func run() { /* DOES CALLOUT */
        guard let loop = RunLoop() else {
            begin(.failure(RunLoop.SourceError.system(operation: "making a run loop", errno: errno)))
            return ended.come()
        }
        LoopLifetime.adopt(loop) { [self] in end() }
        loop.shared.withLock { $0.threadName = name }
        let keepAlive = loop.keepAlive()
        var stages: ThreadStages
        do {
            try loop.prepareDefaultMode()
            let setup = setup.take()!  // taken once, and released when it has returned
            stages = try setup(loop)
        } catch {
            return begin(.failure(error))
        }
        if stages.drain != nil { _ = loop.takeHold() }
        begin(.success(loop))
        while !loop.wasToldToEnd {  // ends: with stop(), which ends the runs in progress
            _ = loop.run(.default, limit: .max, returnsAfterSource: false)
        }
        let hasDrained = drain(loop, &stages)
        loop.performLastBatch()
        // What the last batch gave to a C library reaches the kernel in this pass.
        if hasDrained { _ = loop.run(.default, limit: .min, returnsAfterSource: false) }
        stages.teardown?(loop)
        stages.teardown = nil
        keepAlive.cancel()
    }

    /// Runs the loop until nothing holds the thread any more. False if the loop refuses work already, because there is nothing to drain.
    private func drain(_ loop: RunLoop, _ stages: inout ThreadStages) -> Bool { /* DOES CALLOUT */
        guard loop.acceptsWork else { return false }
        loop.runs.resume()  // nobody asks a second time, so nobody ends the runs again before `waitForHolds`
        if stages.drain != nil {
            stages.drain?(loop)
            stages.drain = nil
            loop.releaseHold()
        }
        loop.waitForHolds()
        if loop.acceptsWork { waitForHolds(loop) }  // usually there is none
        return true
    }

    private func waitForHolds(_ loop: RunLoop) { /* DOES CALLOUT */
        let limit = drainLimit.withLock { $0.duration }
        let timer = RunLoop.Timer(fireAt: loop.now().advanced(by: limit), label: "drain limit") { [name] _ in
            let loop = RunLoop.threadsLoop()
            guard loop.acceptsWork else { return }
            let holds = loop.abandonHolds()
            LibeventRuntime.warn(
                "run loop thread \"\(name)\" ends although \(holds) of its holds are not released: its drain limit has passed")
        }
        drainLimit.withLock { $0.timer = timer }
        loop.add(timer, forMode: .common)
        while loop.acceptsWork {  // ends: with the release of the last hold, or when the timer fires
            _ = loop.run(.default, limit: .max, returnsAfterSource: false)
        }
        drainLimit.withLock { $0.timer = nil }
        timer.invalidate()
    }

    /// On the thread only.
    func shortenDraining(to limit: Duration) {
        let timer = drainLimit.withLock { current in
            current.duration = min(current.duration, limit)
            return current.timer
        }
        guard let timer else { return }
        let date = RunLoop.threadsLoop().now().advanced(by: limit)
        if date < timer.nextFire { timer.nextFire = date }
    }

    private func begin(_ result: Result<RunLoop, any Error>) {
        outcome.withLock { $0 = result }
        started.open()
    }
}
