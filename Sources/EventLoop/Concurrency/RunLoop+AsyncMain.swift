// An async `main` on the main thread's run loop.
//
// The compiler's `main` starts the program's async one on the main thread, runs it to its first suspension, and then calls the runtime's
// `swift_task_asyncMainDrainQueue`. On Linux that hands the main queue to Dispatch's threads and ends the main thread, and the main actor
// wanders. The runtime has a hook there; the first stretch of `main` is the time to set it.

internal import CPlatform

extension RunLoop {
    /// Puts the program's `async` main on `RunLoop.main`: call it in its first line, before the first `await`.
    ///
    /// From its first suspension to the program's end the main thread then runs `RunLoop.main` in `.default`, and with it the main actor,
    /// the main dispatch queue, and the sources and timers of that loop: main-actor code is on the main thread after every `await`. The
    /// program ends when `main` returns, or traps when it throws, as always. `RunLoop.main.stop()` ends a run, and the loop is run again.
    ///
    /// ```
    /// @main enum Program {
    ///     static func main() async throws {
    ///         RunLoop.adoptAsyncMain()
    ///         …
    /// ```
    ///
    /// True when it took, and when it had before. False, and nothing has changed, on another thread than the main one, inside a run of the
    /// main loop (which then serves the main actor already), on a platform whose main queue the loop cannot serve, with a Swift runtime
    /// that this version does not know, and when another library has taken the hook. It cannot tell whether `main` is async, nor whether it
    /// has been suspended before: on the main thread of a program of Dispatch's it does nothing, late. Where it is false, or nothing to
    /// rely on, write a `main` that is not async, start a `Task { @MainActor in … }` there and call `RunLoop.main.run()`.
    @discardableResult
    public static func adoptAsyncMain() -> Bool {
        guard main.isCurrent, main.servesMainQueue, main.runDepth == 0 else { return false }
        // A hook is no promised interface: it is set where it was seen to work.
        #if compiler(>=6.1) && compiler(<6.5)
        return cplatform_divert_async_main { RunLoop.runMainForever() }
        #else
        return false
        #endif
    }

    private static func runMainForever() { /* DOES CALLOUT */
        while true {  // ends: with the program, whose main exits when it returns
            _ = main.run(.default, limit: .max, returnsAfterSource: false)
        }
    }
}
