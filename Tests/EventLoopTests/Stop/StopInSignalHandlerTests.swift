// Rules proved here:
// - A signal handler may call `stop` and `wakeUp`, whatever the interrupted thread is doing: they take no lock and allocate nothing.
// - Both preserve errno.

import EventLoop
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// A signal handler has no context, so its data is here. SAFETY: a test of the serialized suite writes the data before it installs the
// handler. Afterwards the data is only read, and the loop is not released meanwhile.
nonisolated(unsafe) private var loopOfTheHandler: Unmanaged<RunLoop>?
nonisolated(unsafe) private var errnoWasKept = true
private let handled = Atomic(0)

/// SIGURG is ignored by default, so a late signal does no harm.
private let testSignal = SIGURG

private func stopHandler(_: Int32) {
    let before: Int32 = 77
    errno = before
    loopOfTheHandler!._withUnsafeGuaranteedRef { loop in
        loop.wakeUp()
        loop.stop()
    }
    if errno != before { errnoWasKept = false }
    handled.add(1, ordering: .sequentiallyConsistent)
}

private func wakeHandler(_: Int32) {
    loopOfTheHandler!._withUnsafeGuaranteedRef { $0.wakeUp() }
    handled.add(1, ordering: .sequentiallyConsistent)
}

/// Installs `handler` while `body` runs.
private func handling<R>(_ loop: RunLoop, with handler: @convention(c) (Int32) -> Void, _ body: () throws -> R) rethrows -> R {
    loopOfTheHandler = .passUnretained(loop)
    handled.store(0, ordering: .sequentiallyConsistent)
    errnoWasKept = true
    let before = signal(testSignal, handler)
    defer {
        signal(testSignal, before)
        withExtendedLifetime(loop) {}
    }
    return try body()
}

/// A new thread inherits the mask of the thread that makes it, and a pool's threads block signals.
private func unblockTestSignal() {
    var set = sigset_t()
    sigemptyset(&set)
    sigaddset(&set, testSignal)
    pthread_sigmask(SIG_UNBLOCK, &set, nil)
}

private func send(to thread: UInt) {
    #if canImport(Glibc)
    pthread_kill(pthread_t(thread), testSignal)
    #else
    pthread_kill(pthread_t(bitPattern: thread)!, testSignal)
    #endif
}

@Suite(.serialized, .tags(.threads)) struct `A stop in a signal handler` {
    @Test func `ends the sleep of the thread it interrupts`() throws {
        let running = RunningLoop { _ in unblockTestSignal() }
        let result = try handling(running.loop, with: stopHandler) {
            try waitUntilAsleep(running.loop)
            send(to: running.threadID)
            return try running.join()
        }
        #expect(result == .stopped)
        #expect(errnoWasKept)
    }

    @Test func `ends the run whose callout it interrupts`() throws {
        let result = try onFreshThread { loop in
            unblockTestSignal()
            loop.addSource(signaled: true) { _ in
                send(to: currentThreadID())
                #expect(throws: Never.self) { try waitUntil("the signal") { handled.load(ordering: .sequentiallyConsistent) == 1 } }
            }
            return handling(loop, with: stopHandler) { loop.run(for: patience) }
        }
        #expect(result == .stopped)
        #expect(errnoWasKept)
    }

    /// opencflite #26: the handler interrupts the thread while the thread holds the loop's lock, and then waits for that lock forever.
    @Test func `never deadlocks with the code that it interrupts`() throws {
        let running = RunningLoop { loop in
            unblockTestSignal()
            // This thread holds the loop's lock nearly all of the time.
            let idle = RunLoop.CustomSource {}
            loop.addSource(signaled: true) { source in
                for _ in 1...50 {
                    loop.add(idle, forMode: "other")
                    _ = loop.contains(idle, forMode: "other")
                    loop.remove(idle, forMode: "other")
                }
                source.signal()
            }
        }
        let result = try handling(running.loop, with: wakeHandler) {
            for number in 1...500 {
                send(to: running.threadID)
                try waitUntil("signal \(number)") { handled.load(ordering: .sequentiallyConsistent) >= number }
            }
            return try running.end()
        }
        #expect(result == .stopped)
    }
}
