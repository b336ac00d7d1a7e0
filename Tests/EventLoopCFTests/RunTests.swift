// Rules proved here, about runs, modes and blocks:
// - A run that holds only blocks sleeps until a stop, or until a block of another thread and a wake-up, as in CFRunLoop.
// - The names of Core Foundation's modes mean the package's.
// - Whatever fits no number of nanoseconds is no limit.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

/// RxBlocking's RunLoopLock: one thread waits in a run, and whatever it waits for stops the run.
private final class RunLoopLock: Sendable {
    private let currentRunLoop: CFRunLoop
    private let calledStop = Box(false)
    private let timeout: CFTimeInterval

    init(timeout: CFTimeInterval) {
        self.timeout = timeout
        currentRunLoop = CFRunLoopGetCurrent()
    }

    func dispatch(_ action: @escaping @Sendable () -> Void) {
        CFRunLoopPerformBlock(currentRunLoop, CFRunLoopMode.defaultMode.rawValue) { action() }
        CFRunLoopWakeUp(currentRunLoop)
    }

    func stop() {
        calledStop.value = true
        CFRunLoopPerformBlock(currentRunLoop, CFRunLoopMode.defaultMode.rawValue) { [self] in CFRunLoopStop(currentRunLoop) }
        CFRunLoopWakeUp(currentRunLoop)
    }

    func run() -> CFRunLoopRunResult { CFRunLoopRunInMode(CFRunLoopMode.defaultMode, timeout, false) }
    var hasStopped: Bool { calledStop.value }
}

@Suite(.tags(.memory, .threads)) struct RunTests {
    @Test func `a lock that waits in a run works on any thread`() throws {
        try onFreshThread { loop in
            let lock = RunLoopLock(timeout: 1e10)
            let other = Box<JoinableThread<Void>?>(nil)
            // The block starts what the run waits for, as a subscription does.
            lock.dispatch {
                other.value = plainThread {
                    try waitUntilAsleep(loop)
                    lock.stop()
                }
            }
            #expect(lock.run() == .stopped)
            #expect(lock.hasStopped)
            try #require(other.value).join()
        }
    }

    @Test func `a lock whose work is done in the block itself does not sleep`() throws {
        try onFreshThread { _ in
            let lock = RunLoopLock(timeout: 1e10)
            lock.dispatch { lock.stop() }
            #expect(lock.run() == .stopped)
        }
    }

    @Test func `a lock that nobody stops times out`() throws {
        try onFreshThread { loop in
            loop.use(RunLoop.ManualClock(autoAdvance: true))
            let lock = RunLoopLock(timeout: 60)
            lock.dispatch {}
            #expect(lock.run() == .timedOut)
        }
    }

    @Test func `a run that holds only a block goes on until another thread's block and a wake-up`() throws {
        try onFreshThread { loop in
            let calls = Trace()
            CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) { calls.add("own") }
            let other = plainThread {
                try waitUntilAsleep(loop)
                CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) { calls.add("other") }
                CFRunLoopWakeUp(loop)
            }
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, false) == .finished)
            #expect(calls.description == "own other")
            try other.join()
        }
    }

    @Test func `a block that ends the mode's last source leaves the run asleep until it is stopped`() throws {
        try onFreshThread { loop in
            let source = loop.addIdleSource()
            CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) { CFRunLoopSourceInvalidate(source) }
            let other = plainThread {
                try waitUntilAsleep(loop)
                CFRunLoopStop(loop)
            }
            CFRunLoopRun()
            try other.join()
        }
    }

    @Test func `the package's own run ends after a block, also inside a run of Core Foundation's`() throws {
        try onFreshThread { loop in
            let inner = Box<RunLoop.RunResult?>(nil)
            CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) {
                CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) {}
                inner.value = RunLoop.current.run()
                CFRunLoopStop(loop)
            }
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, false) == .stopped)
            #expect(inner.value == .finished)
            loop.performBlock {}
            #expect(loop.run() == .finished)
        }
    }

    @Test func `blocks for several modes are performed once`() throws {
        try onFreshThread { loop in
            let calls = Trace()
            CFRunLoopPerformBlock(loop, ["a", "b"] as [CFRunLoopMode]) { calls.add("both") }
            CFRunLoopPerformBlock(loop, [CFRunLoopMode]()) { calls.add("none") }
            CFRunLoopPerformBlock(loop, "kCFRunLoopCommonModes") { calls.add("common") }
            #expect(CFRunLoopRunInMode("b", 0, false) == .timedOut)
            #expect(CFRunLoopRunInMode("a", 0, false) == .finished)
            #expect(calls.description == "both")
            #expect(CFRunLoopRunInMode("kCFRunLoopDefaultMode", 0, false) == .timedOut)
            #expect(calls.description == "both common")
        }
    }

    @Test func `a limit of zero makes one pass, and one that is no number is none`() throws {
        try onFreshThread { loop in
            loop.addIdleSource()
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false) == .timedOut)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, -.infinity, false) == .timedOut)
            for limit in [1e10, .infinity, .nan, .greatestFiniteMagnitude] as [CFTimeInterval] {
                let other = plainThread {
                    try waitUntilAsleep(loop)
                    #expect(CFRunLoopIsWaiting(loop))
                    CFRunLoopStop(loop)
                }
                #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, limit, false) == .stopped)
                try other.join()
            }
        }
    }

    @Test func `modes have Core Foundation's names, and the common modes cannot be run`() throws {
        try onFreshThread { loop in
            #expect(CFRunLoopCopyCurrentMode(loop) == nil)
            #expect(CFRunLoopCopyAllModes(loop) == [CFRunLoopMode.defaultMode])
            CFRunLoopAddCommonMode(loop, "mine")
            var context = CFRunLoopSourceContext()
            let source = CFRunLoopSourceCreate(nil, 0, &context)
            CFRunLoopAddSource(loop, source, CFRunLoopMode("kCFRunLoopCommonModes"))
            #expect(CFRunLoopContainsSource(loop, source, kCFRunLoopCommonModes) && CFRunLoopContainsSource(loop, source, "mine"))
            #expect(Set(CFRunLoopCopyAllModes(loop)) == [.defaultMode, "mine"])
            #expect(CFEqual(CFRunLoopMode.commonModes, "kCFRunLoopCommonModes") && !CFEqual(kCFRunLoopDefaultMode, "mine"))
            CFRunLoopPerformBlock(loop, "mine") { #expect(CFRunLoopCopyCurrentMode(loop) == "mine") }
            #expect(CFRunLoopRunInMode("mine", 0, false) == .timedOut)
            #expect(CFRunLoopRunInMode(kCFRunLoopCommonModes, 0, false) == .finished)
            #expect(CFRunLoopRunInMode(nil, 0, false) == .finished)
            CFRunLoopSourceInvalidate(source)
        }
    }

    @Test func `results and activities have Core Foundation's values`() {
        #expect([CFRunLoopRunResult.finished, .stopped, .timedOut, .handledSource].map(\.rawValue) == [1, 2, 3, 4])
        #expect(CFRunLoopActivity.allActivities.rawValue == 0x0FFF_FFFF)
        #expect(CFRunLoopGetMain() === RunLoop.main)
        #expect(abs(CFAbsoluteTimeGetCurrent() + kCFAbsoluteTimeIntervalSince1970) > 1.7e9)
    }
}
