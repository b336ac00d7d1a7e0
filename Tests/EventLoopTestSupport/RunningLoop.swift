// A loop that runs on a thread of its own, for tests that act on it from outside.

public import EventLoop
public import Testing

/// A thread whose loop runs in real time, for tests that act on it from outside. Its mode is never empty.
public final class RunningLoop: Sendable {
    public let loop: RunLoop
    public let threadID: UInt
    private let mode: RunLoop.Mode
    private let thread: JoinableThread<RunLoop.RunResult>

    /// `setup` runs first on the new thread; `init` returns after it.
    public init(mode: RunLoop.Mode = .default, setup: @escaping @Sendable (RunLoop) -> Void = { _ in }) {
        let published = Box<(RunLoop, UInt)?>(nil)
        let ready = Gate()
        thread = joinableThread { loop in
            setup(loop)
            loop.addIdleSource(forMode: mode)
            published.value = (loop, currentThreadID())
            ready.open()
            return loop.run(mode: mode, for: patience)
        }
        self.mode = mode
        ready.wait()
        (loop, threadID) = published.value!
    }

    /// Ends the run and the thread; returns the run's result.
    @discardableResult
    public func end(_ location: SourceLocation = #_sourceLocation) throws -> RunLoop.RunResult {
        let loop = loop
        loop.perform(inModes: [mode]) { loop.stop() }
        return try thread.join(location)
    }

    /// Waits until the thread ends by itself.
    @discardableResult
    public func join(_ location: SourceLocation = #_sourceLocation) throws -> RunLoop.RunResult { try thread.join(location) }
}
