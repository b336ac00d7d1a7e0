// stop and wakeUp from a signal handler (semantics 1.9.5, 1.20): they only access atomics and write to a descriptor, and both preserve
// errno. A signal whose handler calls neither does not end a wait.
//
// A signal's action belongs to the process, so each test runs in a process of its own.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// SAFETY: the test writes it before the signal can arrive; the handler only reads it.
private nonisolated(unsafe) var signalledLoop: RunLoop?
// SAFETY: the handler writes it, on any thread; the test reads it after that thread has been joined or has announced the write.
private nonisolated(unsafe) var handlerCalls: Int32 = 0

@Suite(.bounded, .serialized, .tags(.threads)) struct SignalHandlerTests {
    @Test func `stop in a handler that interrupts the sleeping loop's own thread ends the run`() async {
        await #expect(processExitsWith: .success) {
            let result = try onFreshThread { loop in
                install(on: loop) { _ in signalledLoop?.stop() }
                return try whileAsleep(loop) { thread in pthread_kill(thread, SIGUSR1) }
            }
            #expect(result == .stopped)
        }
    }

    @Test func `stop in a handler on another thread ends the run`() async {
        await #expect(processExitsWith: .success) {
            let result = try onFreshThread { loop in
                install(on: loop) { _ in signalledLoop?.stop() }
                return try whileAsleep(loop) { _ in raise(SIGUSR1) }
            }
            #expect(result == .stopped)
        }
    }

    @Test func `stop in a handler that interrupts a callout ends the run after the current pass`() async {
        await #expect(processExitsWith: .success) {
            let trace = try inManualTime { loop, _, trace in
                trace.observe(loop)
                install(on: loop) { _ in signalledLoop?.stop() }
                loop.add(
                    RunLoop.Timer(fireAt: .ms(5), interval: .milliseconds(5)) { _ in
                        trace.add("begin")
                        raise(SIGUSR1)
                        trace.add("end")
                    })
                trace.add("-> \(loop.run(until: .ms(50)))")
                return trace.description
            }
            #expect(trace == "E T S W A begin end X -> stopped")
        }
    }

    @Test func `a sticky stop in a handler before the run ends the run immediately`() async {
        await #expect(processExitsWith: .success) {
            let trace = try inManualTime { loop, _, trace in
                trace.observe(loop)
                install(on: loop) { _ in signalledLoop?.stop(sticky: true) }
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                raise(SIGUSR1)
                trace.add("-> \(loop.run(until: .ms(50)))")
                trace.add("-> \(loop.run(until: .ms(50)))")
                return trace.description
            }
            #expect(trace == "-> stopped E T S W A X -> timedOut")
        }
    }

    @Test func `wakeUp in a handler starts another pass, on whichever thread the handler runs`() async {
        await #expect(processExitsWith: .success) {
            let traces = try [true, false].map { onOwnThread in
                try onFreshThread { loop in
                    let trace = Trace()
                    let passes = Box(0)
                    trace.observe(loop) { activity in
                        if activity == .beforeTimers, passes.increment() == 2 { loop.stop() }
                    }
                    install(on: loop) { _ in signalledLoop?.wakeUp() }
                    let result = try whileAsleep(loop) { thread in
                        if onOwnThread { pthread_kill(thread, SIGUSR1) } else { raise(SIGUSR1) }
                    }
                    trace.add("-> \(result)")
                    return trace.description
                }
            }
            #expect(traces == Array(repeating: "E T S W A T S W A X -> stopped", count: 2))
        }
    }

    @Test func `a signal whose handler does not use the loop does not end its wait`() async {
        await #expect(processExitsWith: .success) {
            var milliseconds = 50
            var areSent = false
            // On a busy machine the deadline may come before the other thread sees the loop asleep: then with a later one.
            while !areSent {  // ends: the deadlines come later and later
                let (result, early, sent) = try onFreshThread { [milliseconds] loop in
                    try runAmongSignals(loop, for: .milliseconds(milliseconds))
                }
                #expect(result == .timedOut)
                #expect(!early)
                areSent = sent
                milliseconds *= 2
            }
        }
    }

    @Test func `a storm of signals to a busy loop's thread neither blocks nor breaks the loop`() async {
        await #expect(processExitsWith: .success) {
            let (performed, signals) = try onFreshThread { loop in
                install(on: loop) { _ in
                    handlerCalls &+= 1
                    signalledLoop?.wakeUp()
                }
                let thread = currentThreadID()
                let isOver = Box(false)
                let storm = plainThread {
                    // Interrupts the loop at any point, whether or not it holds its lock.
                    while !isOver.value { pthread_kill(pthread_t(thread), SIGUSR1) }
                }
                let performed = Box(0)
                let source = RunLoop.CustomSource(perform: { performed.increment() })
                loop.add(source)
                for _ in 0..<2_000 {
                    let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
                    loop.add(timer)
                    loop.performBlock { performed.increment() }
                    source.signal()
                    _ = loop.run(for: .zero)
                    timer.invalidate()
                }
                isOver.value = true
                try storm.join()
                return (performed.value, handlerCalls)
            }
            #expect(performed == 4_000)
            #expect(signals > 0)
        }
    }

    @Test func `each of many runs ends with the stop from a handler`() async {
        await #expect(processExitsWith: .success) {
            let results = try onFreshThread { loop in
                install(on: loop) { _ in signalledLoop?.stop() }
                return try (0..<200).map { _ in try whileAsleep(loop) { thread in pthread_kill(thread, SIGUSR1) } }
            }
            #expect(results == Array(repeating: .stopped, count: 200))
        }
    }

    #if os(Linux)
    @Test func `wakeUp preserves errno even if it cannot write`() async {
        await #expect(processExitsWith: .success) {
            let before = Set(openDescriptors())
            let thread = try RunLoopThread(name: "errno")
            try waitUntilAsleep(thread.runLoop)
            for word in openDescriptors() where !before.contains(word) && word.contains("eventfd") {
                close(Int32(word.split(separator: ":")[0])!)
            }
            errno = 77
            thread.runLoop.wakeUp()
            let after = errno
            #expect(after == 77)
        }
    }
    #endif

    @Test func `stop and wakeUp preserve errno`() throws {
        let thread = try RunLoopThread(name: "errno")
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        let loop = thread.runLoop
        try loop.performAndWait {}
        let ended = try onFreshThread { loop in loop }
        for loop in [loop, ended] {
            for call in [{ loop.wakeUp() }, { loop.stop() }, { loop.stop(sticky: true) }] {
                try? waitUntil { loop.isWaiting || !loop.isValid }
                errno = 77
                call()
                let after = errno
                #expect(after == 77)
            }
        }
    }
}

/// Installs `handler` as the action of SIGUSR1, and unblocks the signal on this thread and the threads that it makes: the threads that run
/// tests block signals.
private func install(on loop: RunLoop, _ handler: @escaping @convention(c) (Int32) -> Void) {
    signalledLoop = loop
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGUSR1)
    precondition(pthread_sigmask(SIG_UNBLOCK, &signals, nil) == 0)
    var action = sigaction()
    #if canImport(Glibc)
    action.__sigaction_handler = .init(sa_handler: handler)
    #else
    action.__sigaction_u = .init(__sa_handler: handler)
    #endif
    precondition(sigaction(SIGUSR1, &action, nil) == 0)
}

/// Runs `loop` until a deadline, while another thread sends signals that the handler ignores. Says whether the run ended early, and whether the
/// loop was asleep when they were sent.
private func runAmongSignals(_ loop: RunLoop, for duration: Duration) throws -> (RunLoop.RunResult, isEarly: Bool, areSent: Bool) {
    install(on: loop) { _ in }
    let alive = loop.keepAlive()
    defer { alive.cancel() }
    let isOver = Box(false)
    let deadline = RunLoop.Instant.now + duration
    let thread = currentThreadID()
    let other = plainThread {
        try waitUntil("the loop sleeps, or its run is over") { loop.isWaiting || isOver.value }
        if isOver.value { return false }
        for _ in 0..<5 {
            pthread_kill(pthread_t(thread), SIGUSR1)
            sched_yield()
        }
        return true
    }
    let result = loop.run(until: deadline)
    let isEarly = RunLoop.Instant.now < deadline
    isOver.value = true
    return (result, isEarly, try other.join())
}

/// Runs `loop` on its thread. Another thread acts as soon as the loop sleeps.
private func whileAsleep(_ loop: RunLoop, _ act: @escaping @Sendable (pthread_t) -> Void) throws -> RunLoop.RunResult {
    let alive = loop.keepAlive()
    defer { alive.cancel() }
    let thread = currentThreadID()
    let other = plainThread {
        try waitUntilAsleep(loop)
        #if canImport(Glibc)
        act(pthread_t(thread))
        #else
        act(pthread_t(bitPattern: thread)!)
        #endif
    }
    let result = loop.run(for: patience)
    try other.join()
    return result
}
