// How the tests put a C library on a loop: in two modes, beside runs that interrupt it, and on a thread that ends while the library works.

public import EventLoop
public import Testing

/// Every library is tested in these modes.
public let hostModes: [RunLoop.Mode] = [.default, "library"]

/// The bound of every run and wait for a library. A test takes a second or two; under AddressSanitizer on a busy machine, some tens.
public let libraryPatience: Duration = .seconds(240)

extension Trait where Self == TimeLimitTrait {
    /// Longer than the bounds of the waits in a test, whose errors say more.
    public static var libraryLimit: Self { .timeLimit(.minutes(10)) }
}

/// Counts what a library has left to do on one loop. The last piece stops the run.
public final class Countdown: Sendable {
    private let loop: RunLoop
    private let left: Box<Int>
    private let calls = Box(0)

    /// For the thread of `loop` only.
    public init(_ count: Int, on loop: RunLoop) {
        self.loop = loop
        left = Box(count)
    }

    /// How often `done` was called.
    public var count: Int { calls.value }

    /// The library calls it for each piece.
    public func done() {
        calls.increment()
        if left.change({ left in
            left -= 1; return left
        }) == 0 {
            loop.stop()
        }
    }

    /// Runs `mode` until all pieces are done. Throws if the run ends before, or does not end in time.
    public func wait(in mode: RunLoop.Mode, _ what: String, _ location: SourceLocation = #_sourceLocation) throws {
        let deadline = RunLoop.Instant.now + libraryPatience
        while left.value > 0 {  // ends: when all is done, or by throwing; other pieces of work may stop the run, too
            let result = loop.run(mode: mode, until: deadline)
            guard result == .stopped else {
                throw RunEnded(what: "\(what); \(left.value) of \(calls.value + left.value) left", result: result, location)
            }
        }
    }
}

public struct RunEnded: Error, CustomStringConvertible {
    public let description: String

    init(what: String, result: RunLoop.RunResult, _ location: SourceLocation) {
        let end = result == .timedOut ? "was not over after \(libraryPatience)" : "ended with \(result)"
        description = "the run \(end), but waited for this: \(what) (\(location.fileID):\(location.line))"
    }
}

/// Interrupts a library: a timer of the library's mode runs the loop in its handler, alternately in a mode that the library has nothing in,
/// and in the library's own.
///
/// In the former the library must be silent: `calls` counts its callbacks.
public func interrupt(
    _ loop: RunLoop, _ mode: RunLoop.Mode, times: Int = 30, _ location: SourceLocation = #_sourceLocation,
    calls: @escaping @Sendable () -> Int
) -> RunLoop.Timer {
    let turn = Box(0)
    let timer = RunLoop.Timer(every: .milliseconds(1), label: "interruption") { timer in
        // The timer of a nested run in the library's own mode must not nest again, and again.
        if loop.runDepth > 2 { return }
        let turn = turn.increment()
        if turn > times { return timer.invalidate() }
        if turn % 2 == 1 { return runSilently(loop, location, calls: calls) }
        // A stop that was meant for the enclosing run.
        if loop.run(mode: mode, for: .milliseconds(1)) == .stopped { loop.stop() }
    }
    loop.add(timer, forMode: mode)
    return timer
}

/// Runs a mode that the library has nothing in, for a moment; the library must be silent.
public func runSilently(_ loop: RunLoop, _ location: SourceLocation = #_sourceLocation, calls: () -> Int) {
    let before = calls()
    let alive = loop.keepAlive(forMode: "silent")
    defer { alive.cancel() }
    let result = loop.run(mode: "silent", for: .milliseconds(1))
    #expect(result != .finished && result != .handledSource, "\(result)", sourceLocation: location)
    // The stop was meant for the enclosing run: the test ends the thread.
    if result == .stopped { loop.stop() }
    #expect(calls() == before, "the library was called while another mode ran", sourceLocation: location)
}

/// A thread whose loop runs one mode for a C library, until `end()`: a `RunLoopThread` if the mode is the default one.
public final class LibraryHost<Library>: Sendable {
    public let loop: RunLoop
    private let mode: RunLoop.Mode
    private let library: LoopBound<Library>
    private let join: @Sendable () throws -> Void

    /// `make` is called on the new thread before its loop runs, and `free` at its end, after the last run.
    public init(
        _ mode: RunLoop.Mode = .default, make: @escaping @Sendable (RunLoop) throws -> Library, free: @escaping @Sendable (Library) -> Void
    ) throws {
        let made = Box<Result<(RunLoop, LoopBound<Library>), any Error>?>(nil)
        self.mode = mode
        ignoreBrokenPipes()
        if mode == .default {
            let thread = try RunLoopThread(
                name: "library",
                setup: { loop in made.value = .success((loop, LoopBound(try make(loop)))) },
                teardown: { loop in
                    if case .success(let (_, library))? = made.value { free(library.value) }
                    Self.finishFreeing(loop, mode)
                    made.value = nil
                })
            join = {
                thread.stop()
                guard thread.join(timeout: libraryPatience) else { throw ThreadDidNotEnd() }
            }
        } else {
            let isOver = Box(false)
            let isReady = Gate()
            let thread = joinableThread { loop in
                let alive = loop.keepAlive(forMode: mode)
                defer { alive.cancel() }
                do { made.value = .success((loop, LoopBound(try make(loop)))) } catch { made.value = .failure(error) }
                isReady.open()
                guard case .success(let (_, library))? = made.value else { return }
                while !isOver.value, loop.run(mode: mode, for: libraryPatience) == .stopped {}  // ends: with `end()`, or at the bound
                free(library.value)
                Self.finishFreeing(loop, mode)
                made.value = nil
            }
            isReady.wait()
            join = {
                isOver.value = true
                if case .success(let (loop, _))? = made.value { loop.stop(sticky: true) }
                try thread.join(within: libraryPatience + .seconds(30))
            }
        }
        (loop, library) = try made.value!.get()
    }

    /// libevent defers the last part of some frees, of bufferevents with pending callbacks for example, to the next run.
    private static func finishFreeing(_ loop: RunLoop, _ mode: RunLoop.Mode) { _ = loop.run(mode: mode, for: .zero) }

    /// Calls `body` on the library's thread, and waits for it.
    public func use<R: Sendable>(_ body: @Sendable (Library) throws -> R) throws -> R {
        try loop.performAndWait(inModes: [mode], timeout: libraryPatience) { try body(library.value) }
    }

    /// Ends the thread, whatever the library is doing.
    public func end() throws {
        try join()
    }
}

public struct ThreadDidNotEnd: Error, CustomStringConvertible {
    public let description = "the thread did not end within \(libraryPatience)"
}
