// The main loop from other threads (semantics 9.1): available before the main thread has asked for it, and not the asking thread's.
// What it does on the main thread is tested in EventLoopMainThreadTests, whose tests run there.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct MainLoopFromThreadsTests {
    @Test func `the main loop is there before the main thread has asked for it`() async {
        // In a process of its own, where nothing has asked before.
        await #expect(processExitsWith: .success) {
            let outcome = try onFreshThread { loop in
                let main = RunLoop.main
                return [main !== loop, main === RunLoop.main, !main.isCurrent, main.isValid, main.perform {}, !main.isWaiting]
            }
            #expect(outcome == Array(repeating: true, count: 6))
        }
    }

    @Test func `many threads that ask for the main loop at once get one`() async {
        await #expect(processExitsWith: .success) {
            let threads = (0..<8).map { _ in plainThread { ObjectIdentifier(RunLoop.main) } }
            let loops = try threads.map { try $0.join() }
            #expect(Set(loops).count == 1)
        }
    }

    @Test func `running the main loop from another thread traps with a sentence`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try plainThread { _ = RunLoop.main.run(for: .zero) }.join()
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("thread"), "\(errors)")
    }
}
