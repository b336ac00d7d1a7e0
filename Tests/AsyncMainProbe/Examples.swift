// The two forms of a `main` on the main run loop, as docs/concurrency.md shows them. Both are compiled; the probe runs the `async` form.

import EventLoop

enum Program {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        try await RunLoop.main.clock.sleep(for: .seconds(1))
        print("still on the main thread")
    }
}

enum PlainProgram {
    static func main() {
        Task { @MainActor in
            print("on the main thread")
            RunLoop.main.stop()
        }
        RunLoop.main.run()
    }
}
