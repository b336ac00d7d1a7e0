// A file that stays in the kernel's set, in a process that has no descriptors for a new base (semantics 4.17; decision 14).

import EventLoop
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

/// The wait polls every 10 ms instead of spinning, all other events are delivered, and the loop replaces the base as soon as it can.
@Sendable func fileLeftBehind() throws {
    let warnings = Counter()
    RunLoop.setLibeventLogHandler { _, message in if message.contains("\"hasty\"") { warnings.increment() } }
    let (ends, other) = (try Ends(), try Ends())
    let seen = Counter()
    let number = fcntl(ends.near, F_DUPFD_CLOEXEC, 90)
    let hasty = try RunLoop.DescriptorSource(descriptor: number, events: .read, label: "hasty") { _, _ in }
    let source = try RunLoop.DescriptorSource(descriptor: other.near, events: .read) { _, _ in
        for _ in 0..<other.empty() { seen.increment() }
    }
    try withFullProcess { loop, _, all in
        loop.add(hasty)
        loop.add(source)
        _ = loop.run(for: .zero)
        close(number)
        hasty.invalidate()
        all.all.take()
        try ends.fill()
        let before = threadTime()
        try require(loop.run(for: .milliseconds(300)) == .timedOut, "the run did not end by its limit")
        let used = threadTime() - before
        // A wait that spins uses all of the 300 ms that it can get.
        try require(used < 60_000_000, "\(used) ns of processor time in 300 ms")
        try require(warnings.value == 0, "the library says that the base was replaced")
        try other.fill()
        run(loop) { seen.value == 1 }
        try require(seen.value == 1, [source], "the other source is not served")
        let stopper = try startThread {
            usleep(20_000)
            loop.stop()
        }
        try require(loop.run(for: patience) == .stopped, "the stop is lost")
        try stopper.join()
        // One run: the wait checks by itself.
        let freer = try startThread {
            usleep(50_000)
            all.all.free()
        }
        _ = loop.run(for: .seconds(1))
        try freer.join()
        try require(warnings.value == 1, "\(warnings.value) warnings")
        try other.fill()
        run(loop) { seen.value == 2 }
        try require(seen.value == 2, [source], "the new base does not serve")
        source.invalidate()
    }
}

/// The calling thread's processor time, in nanoseconds.
private func threadTime() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
