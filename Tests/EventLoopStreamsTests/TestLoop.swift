// A loop for tests that await.

import EventLoop

/// Calls `body` with the loop of a thread that ends afterwards.
@discardableResult
func withTestLoop<R: Sendable>(
    isolation: isolated (any Actor)? = #isolation, _ body: (RunLoop) async throws -> R
) async throws -> R {
    let thread = try RunLoopThread(name: "test")
    do {
        let result = try await body(thread.runLoop)
        thread.stop()
        await thread.join()
        return result
    } catch {
        thread.stop()
        await thread.join()
        throw error
    }
}
