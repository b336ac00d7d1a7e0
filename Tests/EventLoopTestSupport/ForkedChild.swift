// Children of fork. A test that forks does so in a process of its own, in which no thread of another test holds a lock.

public import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// Glibc's overlay hides fork from Swift, because most programs do unsafe things after it. These tests do the same on purpose.
@_silgen_name("fork") public func systemFork() -> Int32

/// How a forked child ended, and what it wrote to standard error.
public struct ChildEnd: Sendable {
    public var status: Int32
    public var errors: String
    /// The signal that killed the child; 0 if it exited.
    public var signal: Int32 { status & 0x7f }
    /// It was killed because it did not end.
    public var stoodStill: Bool { signal == SIGALRM || signal == SIGKILL }
}

/// Runs `body` in a forked child. The result of `body` is the child's exit code.
///
/// A lock that another thread held at the fork is held for ever in the child, and the Swift runtime takes locks when it uses a type for the
/// first time, and under ThreadSanitizer whenever it reads a global value. A child that hangs is therefore killed, and another one is forked:
/// the library is at fault only if every child hangs.
public func inForkedChild(_ body: () -> Int32) -> ChildEnd {
    for _ in 1...3 {
        let end = oneForkedChild(body)
        if !end.stoodStill { return end }
    }
    return oneForkedChild(body)
}

/// Returns when `loop` has made a pass and sleeps again. In a debug build, a thread in its first pass may hold a lock of the Swift runtime, also when it
/// counts as asleep already, and no thread of a child releases it.
public func waitUntilAsleepAfterPass(_ loop: RunLoop, _ location: SourceLocation = #_sourceLocation) throws {
    let isPerformed = Box(false)
    loop.perform { isPerformed.value = true }
    try waitUntil("the loop makes a pass", location) { isPerformed.value }
    try waitUntilAsleep(loop, location)
}

/// A loop of a child of fork ends a source that the child has inherited, and does not call it.
public func expectEndInChild(of source: RunLoop.Source, calls: Box<Int>, _ location: SourceLocation = #_sourceLocation) {
    let end = inForkedChild {
        // The mode is empty when the loop has ended the source.
        let result = try? onFreshThread { loop in
            loop.add(source)
            return loop.run(for: patience)
        }
        return result == .finished && calls.value == 0 ? 0 : 1
    }
    #expect(end.status == 0, "\(end)", sourceLocation: location)
}

/// Runs `body` in one forked child, without a second attempt.
public func oneForkedChild(_ body: () -> Int32) -> ChildEnd {
    var ends: [Int32] = [-1, -1]
    precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
    let child = systemFork()
    precondition(child >= 0, "fork: errno \(errno)")
    if child == 0 {
        killLater()
        dup2(ends[1], 2)
        close(ends[0])
        close(ends[1])
        _exit(body())
    }
    close(ends[1])
    defer { close(ends[0]) }
    return waitForChild(child, errors: ends[0])
}

/// Reads what the child writes until it ends. One that hangs before its alarm is set, in a handler of fork, is killed from here.
public func waitForChild(_ child: Int32, errors descriptor: Int32) -> ChildEnd {
    let deadline = ContinuousClock.now + .seconds(150)
    var errors = [UInt8]()
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {  // ends: with the child, which is killed at the deadline
        do {
            try waitUntilReadable(descriptor, "the child ends", within: deadline - .now)
        } catch {
            // Children of its own may have copies of the pipe, so its end is not waited for.
            kill(child, SIGKILL)
            break
        }
        let count = read(descriptor, &buffer, buffer.count)
        if count <= 0 { break }
        errors += buffer[..<count]
    }
    var status: Int32 = 0
    while waitpid(child, &status, 0) < 0 && errno == EINTR {}
    return ChildEnd(status: status, errors: String(decoding: errors, as: UTF8.self))
}

/// Tests run on threads of Dispatch, which block all signals.
public func killLater(seconds: UInt32 = 120) {
    var alarms = sigset_t()
    sigemptyset(&alarms)
    sigaddset(&alarms, SIGALRM)
    pthread_sigmask(SIG_UNBLOCK, &alarms, nil)
    alarm(seconds)
}
