// The code of docs/threads.md about threads of one's own, compiled and run. The rest of the page is in EventLoopTests.

import EventLoop
import EventLoopTestSupport
import Testing

/// The body of a thread that you have started yourself.
func runUntilStopped(publish: (RunLoop) -> Void) -> RunLoop.RunResult {
    let loop = RunLoop.current
    let keepAlive = loop.keepAlive()  // the run waits, although nothing is in the mode yet
    defer { keepAlive.cancel() }
    publish(loop)  // from now on others may hand it work, or stop it
    return loop.run()
}

@Suite(.bounded) struct DocumentedThreads {
    @Test func `a thread of one's own works until it is stopped, and a stop is never too early`() async throws {
        let published = SingleLoop()
        let thread = plainThread { runUntilStopped { published.loop = $0 } }
        try await suspendUntil("the loop is published") { published.loop != nil }
        let loop = try #require(published.loop)

        let answer = try await loop.performAsync { 6 * 7 }
        loop.stop(sticky: true)  // ends the run in progress, or the next one if there is none

        #expect(answer == 42)
        #expect(try await elsewhere { try thread.join() } == .stopped)
    }
}

private final class SingleLoop: Sendable {
    private let box = Box<RunLoop?>(nil)
    var loop: RunLoop? {
        get { box.value }
        set { box.value = newValue }
    }
}
