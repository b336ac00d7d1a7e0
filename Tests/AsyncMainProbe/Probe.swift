// A program with an async `main`, which AsyncMainTests start. Its first argument names the task to do.

import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let mainThread = pthread_self()

private func isOnMainThread() -> Bool { pthread_equal(pthread_self(), mainThread) != 0 }

private struct Refused: Error {}

private func say(_ text: String) {
    print(text)
    fflush(nil)
}

@main
enum Probe {
    static func main() async throws {
        _ = mainThread
        // A probe that hangs must fail its test, not hang it.
        alarm(1_200)
        switch CommandLine.arguments.dropFirst().first {
        case "plain": await seeThreads()
        case "adopted":
            say("adopted \(RunLoop.adoptAsyncMain())")
            await seeThreads()
        case "again": say("adopted \(RunLoop.adoptAsyncMain()) \(RunLoop.adoptAsyncMain())")
        case "nested": await nest()
        case "throws":
            say("adopted \(RunLoop.adoptAsyncMain())")
            await Task { @MainActor in await Task.yield() }.value
            throw Refused()
        case "exit":
            say("adopted \(RunLoop.adoptAsyncMain())")
            try await RunLoop.main.clock.sleep(for: .milliseconds(1))
            exit(7)
        case "stopped": await stop()
        case "elsewhere":
            let taken = await Task.detached { await refuseInsideARun() }.value
            say("adopted elsewhere \(taken)")
        default: exit(64)
        }
        say("end")
    }

    /// Prints whether the main actor still runs on the main thread after one await of each kind.
    @MainActor static func seeThreads() async {
        var stays = isOnMainThread()
        await Task.detached {}.value
        stays = stays && isOnMainThread()
        try? await Task.sleep(for: .milliseconds(1))
        stays = stays && isOnMainThread()
        for _ in 0..<100 {
            await Task.yield()
            stays = stays && isOnMainThread()
        }
        await withTaskGroup { group in
            for _ in 0..<10 { group.addTask { @MainActor in isOnMainThread() } }
            for await stayed in group { stays = stays && stayed }
        }
        if stays && RunLoop.main.runDepth > 0 {
            try? await RunLoop.main.clock.sleep(for: .milliseconds(1))
            stays = stays && isOnMainThread()
        }
        say("stays \(stays), in a run \(RunLoop.main.runDepth > 0)")
    }

    /// A nested run in a plain handler serves the main actor; a nested run in the main actor's own code does not.
    @MainActor static func nest() async {
        say("adopted \(RunLoop.adoptAsyncMain())")
        let loop = RunLoop.main
        await withCheckedContinuation { continuation in
            loop.add(
                RunLoop.Timer(after: .zero) { _ in
                    Task { @MainActor in
                        say("in a nested run \(loop.runDepth), main thread \(isOnMainThread())")
                        loop.stop()
                    }
                    say("\(runNested(loop))")
                    continuation.resume()
                })
        }
        Task { @MainActor in say("afterwards") }
        let timer = RunLoop.Timer(after: .milliseconds(2)) { _ in
            say("timer")
            loop.stop()
        }
        loop.add(timer)
        say("\(runNested(loop))")
        await Task.yield()
        await Task { @MainActor in }.value
    }

    @MainActor private static func stop() async {
        say("adopted \(RunLoop.adoptAsyncMain())")
        for _ in 0..<3 {
            RunLoop.main.stop()
            try? await Task.sleep(for: .milliseconds(1))
        }
        say("still in a run \(RunLoop.main.runDepth)")
    }

    /// A call to the main actor from a plain main thread is allowed; inside a run it is refused.
    @MainActor private static func refuseInsideARun() -> Bool {
        RunLoop.main.isCurrent && RunLoop.adoptAsyncMain()
    }
}

/// The compiler does not let an async function run a loop directly.
private func runNested(_ loop: RunLoop) -> RunLoop.RunResult { loop.run(for: .seconds(600)) }
