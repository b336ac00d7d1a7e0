// At the first suspension of an async `main` the runtime calls `swift_task_asyncMainDrainQueue`. On Linux that passes the main queue to Dispatch's
// threads and ends the main thread, so the main actor changes threads. The runtime has a hook there, which must be set before.

internal import CPlatform

extension RunLoop {
    /// Runs the program's `async` main on `RunLoop.main`. Call it in the first line of `main`, before the first `await`.
    ///
    /// From the first suspension of `main` on, the main thread runs `RunLoop.main` in `.default`, and thereby serves the main actor, the main
    /// dispatch queue, and the sources and timers of that loop. So main-actor code is on the main thread after every `await`. The program ends when
    /// `main` returns, and traps if `main` throws, as usual. `RunLoop.main.stop()` ends a run, and then the loop runs again.
    ///
    /// ```
    /// @main enum Program {
    ///     static func main() async throws {
    ///         RunLoop.adoptAsyncMain()
    ///         …
    /// ```
    ///
    /// Returns true on success, and if an earlier call has succeeded. Returns false without effect on a thread other than the main one, inside a run
    /// of the main loop (which already serves the main actor), on a platform whose main queue the loop cannot serve, with a Swift runtime that this
    /// version does not know, and if another library has set the hook. It cannot detect that `main` is not async or was already suspended, and has no
    /// effect then. Without it: in a `main` that is not async, start a `Task { @MainActor in … }`, and call `RunLoop.main.run()`.
    @discardableResult
    public static func adoptAsyncMain() -> Bool {
        guard main.isCurrent, main.servesMainQueue, main.runDepth == 0 else { return false }
        // The hook is not a documented interface, so it is set only with the versions that it was tested with.
        #if compiler(>=6.1) && compiler(<6.5)
        return cplatform_divert_async_main { /* DOES CALLOUT */
            while true {  // ends with the program, whose main calls exit when it returns
                _ = RunLoop.main.run(.default, limit: .max, returnsAfterSource: false)
            }
        }
        #else
        return false
        #endif
    }
}
