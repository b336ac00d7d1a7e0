// The main loop from other threads (semantics 9.1): it is available before the main thread has asked for it, and does not belong to the
// thread that asks. EventLoopMainThreadTests tests its behaviour on the main thread.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded, .tags(.threads)) struct MainLoopFromThreadsTests {
    @Test func `the main loop is available before the main thread has asked for it`() async {
        // In a process of its own, in which no thread has asked before.
        await #expect(processExitsWith: .success) {
            let outcome = try onFreshThread { loop in
                let main = RunLoop.main
                return [main !== loop, main === RunLoop.main, !main.isCurrent, main.isValid, main.perform {}, !main.isWaiting]
            }
            #expect(outcome == Array(repeating: true, count: 6))
        }
    }

    @Test func `many threads that ask for the main loop at the same time get the same loop`() async {
        await #expect(processExitsWith: .success) {
            let threads = (0..<8).map { _ in plainThread { ObjectIdentifier(RunLoop.main) } }
            let loops = try threads.map { try $0.join() }
            #expect(Set(loops).count == 1)
        }
    }

    @Test func `running the main loop from another thread traps with a message`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try plainThread { _ = RunLoop.main.run(for: .zero) }.join()
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("thread"), "\(errors)")
    }
}
