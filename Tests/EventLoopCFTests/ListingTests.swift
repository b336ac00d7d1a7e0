// The Guide's Listings 3-1 to 3-15 with the functions of EventLoopCF, as close to the letter as Swift allows, and run. Listings 3-16 to 3-19,
// about ports with names, are in EventLoopTests/MessagePorts/ListingTests.swift.
//
// What Swift changes: the constants of enumerations are members (`.stopped`), YES is `true`, `&myRunLoopObserver` is `myRunLoopObserver`,
// nobody calls CFRelease, and globals that threads share are constants or locked. What this package changes: NSRunLoop and NSTimer are
// CFRunLoop and CFRunLoopTimer, NSMachPort is `RunLoop.Port`, and performSelectorOnMainThread is `performAndWait`.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

// MARK: Listing 3-1: creating a run loop observer

private final class MyThread: Sendable {
    let log = Trace()
    let fired = Counter()

    func threadMain() {
        // The application uses garbage collection, so no autorelease pool is needed.
        let myRunLoop = CFRunLoopGetCurrent()

        // Create a run loop observer and attach it to the run loop.
        var context = CFRunLoopObserverContext(
            version: 0, info: Unmanaged.passUnretained(self).toOpaque(), retain: nil, release: nil, copyDescription: nil)
        let observer = CFRunLoopObserverCreate(
            kCFAllocatorDefault,
            CFRunLoopActivity.allActivities.rawValue, true, 0, myRunLoopObserver, &context)

        if observer != nil {
            CFRunLoopAddObserver(myRunLoop, observer, kCFRunLoopDefaultMode)
        }

        // Create and schedule the timer.
        var timerContext = CFRunLoopTimerContext()
        timerContext.info = Unmanaged.passUnretained(self).toOpaque()
        CFRunLoopAddTimer(
            myRunLoop,
            CFRunLoopTimerCreate(kCFAllocatorDefault, CFAbsoluteTimeGetCurrent() + 0.1, 0.1, 0, 0, doFireTimer, &timerContext),
            kCFRunLoopDefaultMode)

        var loopCount = 10
        repeat {
            // Run the run loop 10 times to let the timer fire.
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1, false)
            loopCount -= 1
        } while loopCount != 0
    }
}

private func myRunLoopObserver(observer: CFRunLoopObserver?, activity: CFRunLoopActivity, info: UnsafeMutableRawPointer?) {
    Unmanaged<MyThread>.fromOpaque(info!).takeUnretainedValue().log.add(letter(of: activity))
}

private func doFireTimer(timer: CFRunLoopTimer?, info: UnsafeMutableRawPointer?) {
    Unmanaged<MyThread>.fromOpaque(info!).takeUnretainedValue().fired.increment()
}

// MARK: Listing 3-2: running a run loop

private func skeletonThreadMain() {
    var done = false

    // Add your sources or timers to the run loop and do any other setup.

    repeat {
        // Start the run loop but return after each source is handled.
        let result = CFRunLoopRunInMode(kCFRunLoopDefaultMode, 10, true)

        // If a source explicitly stopped the run loop, or if there are no
        // sources or timers, go ahead and exit.
        if (result == .stopped) || (result == .finished) {
            done = true
        }

        // Check for any other exit conditions here and set the
        // done variable as needed.
    } while !done

    // Clean up code here. Be sure to release any allocated autorelease pools.
}

// MARK: Listing 3-3: the custom input source object definition

private final class RunLoopSource: @unchecked Sendable {
    // SAFETY: `runLoopSource` is set by `init` only; `commands` and `received` are locked.
    private var runLoopSource: CFRunLoopSource!
    private let commands = Locked<[(Int, String)]>([])
    let received = Trace()

    // MARK: Listing 3-7: installing the run loop source

    init() {
        var context = CFRunLoopSourceContext(
            version: 0, info: Unmanaged.passUnretained(self).toOpaque(), retain: nil, release: nil, copyDescription: nil, equal: nil,
            hash: nil,
            schedule: RunLoopSourceScheduleRoutine,
            cancel: RunLoopSourceCancelRoutine,
            perform: RunLoopSourcePerformRoutine)

        runLoopSource = CFRunLoopSourceCreate(nil, 0, &context)
    }

    func addToCurrentRunLoop() {
        let runLoop = CFRunLoopGetCurrent()
        CFRunLoopAddSource(runLoop, runLoopSource, kCFRunLoopDefaultMode)
    }

    func invalidate() { CFRunLoopSourceInvalidate(runLoopSource) }

    /// Handler method
    func sourceFired() {
        let present = commands.withLock { commands in
            defer { commands = [] }
            return commands
        }
        for (command, data) in present {
            received.add("\(command):\(data)")
            if command == exitCommand { invalidate() }
        }
    }

    // Client interface for registering commands to process
    func addCommand(_ command: Int, withData data: String) { commands.withLock { $0.append((command, data)) } }

    // MARK: Listing 3-9: waking up the run loop

    func fireAllCommandsOnRunLoop(_ runloop: CFRunLoop) {
        CFRunLoopSourceSignal(runLoopSource)
        CFRunLoopWakeUp(runloop)
    }
}

private let exitCommand = -1

/// RunLoopContext is a container object used during registration of the input source.
private final class RunLoopContext: Sendable {
    let runLoop: CFRunLoop
    let source: RunLoopSource

    init(source: RunLoopSource, andLoop loop: CFRunLoop) { (self.source, runLoop) = (source, loop) }
}

// MARK: Listing 3-4: scheduling a run loop source

@Sendable private func RunLoopSourceScheduleRoutine(info: UnsafeMutableRawPointer?, rl: CFRunLoop?, mode: CFRunLoopMode?) {
    let obj = Unmanaged<RunLoopSource>.fromOpaque(info!).takeUnretainedValue()
    let del = AppDelegate.shared.value!
    let theContext = RunLoopContext(source: obj, andLoop: rl!)

    del.runLoop.perform { del.registerSource(theContext) }
}

// MARK: Listing 3-5: performing work in the input source

private func RunLoopSourcePerformRoutine(info: UnsafeMutableRawPointer?) {
    let obj = Unmanaged<RunLoopSource>.fromOpaque(info!).takeUnretainedValue()
    obj.sourceFired()
}

// MARK: Listing 3-6: invalidating an input source

@Sendable private func RunLoopSourceCancelRoutine(info: UnsafeMutableRawPointer?, rl: CFRunLoop?, mode: CFRunLoopMode?) {
    let obj = Unmanaged<RunLoopSource>.fromOpaque(info!).takeUnretainedValue()
    let del = AppDelegate.shared.value!
    let theContext = RunLoopContext(source: obj, andLoop: rl!)

    try! del.runLoop.performAndWait { del.removeSource(theContext) }
}

// MARK: Listing 3-8: registering and removing an input source with the application delegate

private final class AppDelegate: Sendable {
    static let shared = Box<AppDelegate?>(nil)

    /// The main thread's; here, the test's.
    let runLoop: CFRunLoop
    private let sourcesToPing = Locked<[RunLoopContext]>([])

    init(_ runLoop: CFRunLoop) { self.runLoop = runLoop }

    func registerSource(_ sourceInfo: RunLoopContext) { sourcesToPing.withLock { $0.append(sourceInfo) } }

    func removeSource(_ sourceInfo: RunLoopContext) {
        sourcesToPing.withLock { sources in
            let objToRemove = sources.firstIndex { $0.source === sourceInfo.source && $0.runLoop === sourceInfo.runLoop }

            if let objToRemove { sources.remove(at: objToRemove) }
        }
    }

    var sources: [RunLoopContext] { sourcesToPing.withLock { $0 } }
}

// MARK: Listing 3-11: creating and scheduling a timer using Core Foundation

private func myCFTimerCallback(timer: CFRunLoopTimer?, info: UnsafeMutableRawPointer?) { CFRunLoopStop(CFRunLoopGetCurrent()) }

// MARK: Listings 3-12 to 3-15: ports, which Core Foundation has as sources

private let kCheckinMessage: UInt32 = 100
private let exitMessage: UInt32 = 1

/// Listing 3-14.
private func launchThread(with inData: RunLoop.Port) -> JoinableThread<Int> {
    plainThread {
        // Set up the connection between this thread and the main thread.
        let shouldExit = Box(false)
        let turns = Counter()
        try sendCheckinMessage(to: inData, shouldExit)

        // Let the run loop process things.
        repeat {
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true)
            turns.increment()
        } while !shouldExit.value
        return turns.value
    }
}

/// Listing 3-15.
private func sendCheckinMessage(to outPort: RunLoop.Port, _ shouldExit: Box<Bool>) throws {
    // Create and configure the worker thread port.
    let myPort = RunLoop.Port { _, message in if message.id == exitMessage { shouldExit.value = true } }
    CFRunLoopAddSource(CFRunLoopGetCurrent(), myPort, kCFRunLoopDefaultMode)

    // Create the check-in message.
    let messageObj = RunLoop.PortMessage(id: kCheckinMessage, replyPort: myPort)
    try outPort.send(messageObj, before: .now)
}

@Suite(.tags(.memory, .threads)) struct ListingTests {
    @Test func `Listing 3-1: an observer and a repeating timer, over ten runs of a second`() throws {
        try onFreshThread { loop in
            loop.use(RunLoop.ManualClock(autoAdvance: true))
            let thread = MyThread()
            thread.threadMain()
            // The first date is a moment later than a tenth of a second, since the wall clock is read twice.
            #expect((99...100).contains(thread.fired.value))
            let log = thread.log.list
            #expect(log.filter { $0 == "E" }.count == 10 && log.filter { $0 == "X" }.count == 10)
            #expect(log.prefix(5) == ["E", "T", "S", "W", "A"])
        }
    }

    @Test func `Listing 3-2: a thread runs until a source stops it, or nothing is left`() throws {
        try onFreshThread { loop in
            skeletonThreadMain()
            let calls = Counter()
            let timer = CFRunLoopTimerCreateWithHandler(nil, CFAbsoluteTimeGetCurrent(), 0.001, 0, 0) { _ in
                if calls.increment() == 3 { CFRunLoopStop(loop) }
            }
            CFRunLoopAddTimer(loop, timer, kCFRunLoopDefaultMode)
            skeletonThreadMain()
            #expect(calls.value == 3)
        }
    }

    @Test func `Listings 3-3 to 3-9: a client finds a source, gives it commands, and loses it`() throws {
        try onFreshThread { loop in
            let delegate = AppDelegate(CFRunLoopGetCurrent())
            AppDelegate.shared.value = delegate
            let idle = loop.addIdleSource()
            let worker = plainThread {
                let source = RunLoopSource()
                source.addToCurrentRunLoop()
                CFRunLoopRun()
                return source.received.description
            }
            // The registration.
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            let client = try #require(delegate.sources.first)
            client.source.addCommand(1, withData: "one")
            client.source.addCommand(2, withData: "two")
            client.source.addCommand(exitCommand, withData: "exit")
            client.source.fireAllCommandsOnRunLoop(client.runLoop)
            // The removal, for which the worker waits.
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            #expect(delegate.sources.isEmpty)
            #expect(try worker.join() == "1:one 2:two -1:exit")
            idle.invalidate()
        }
    }

    @Test func `Listing 3-10: two timers, one with a date and one scheduled from now`() throws {
        try onFreshThread { loop in
            loop.use(RunLoop.ManualClock(autoAdvance: true))
            let (first, second) = (Counter(), Counter())
            let myRunLoop = CFRunLoopGetCurrent()

            // Create and schedule the first timer.
            let futureDate = CFAbsoluteTimeGetCurrent() + 1.0
            let myTimer = CFRunLoopTimerCreateWithHandler(kCFAllocatorDefault, futureDate, 0.1, 0, 0) { _ in first.increment() }
            CFRunLoopAddTimer(myRunLoop, myTimer, kCFRunLoopDefaultMode)

            // Create and schedule the second timer.
            CFRunLoopAddTimer(
                myRunLoop,
                CFRunLoopTimerCreateWithHandler(kCFAllocatorDefault, CFAbsoluteTimeGetCurrent() + 0.2, 0.2, 0, 0) { _ in
                    second.increment()
                }, kCFRunLoopDefaultMode)

            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1.95, false) == .timedOut)
            #expect(first.value == 10 && second.value == 9)
        }
    }

    @Test func `Listing 3-11: a timer in the common modes with a date of 2001 fires in the first pass`() throws {
        try onFreshThread { _ in
            let runLoop = CFRunLoopGetCurrent()
            var context = CFRunLoopTimerContext(version: 0, info: nil, retain: nil, release: nil, copyDescription: nil)
            let timer = CFRunLoopTimerCreate(
                kCFAllocatorDefault, 0.1, 0.3, 0, 0,
                myCFTimerCallback, &context)

            CFRunLoopAddTimer(runLoop, timer, kCFRunLoopCommonModes)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false) == .stopped)
            #expect(CFRunLoopTimerIsValid(timer) && CFRunLoopTimerGetNextFireDate(timer) > CFAbsoluteTimeGetCurrent() - 1)
        }
    }

    @Test func `Listings 3-12 to 3-15: a worker checks in through the port that it was given`() throws {
        try onFreshThread { loop in
            let distantPort = Box<RunLoop.Port?>(nil)
            // This closure handles incoming port messages.
            let myPort = RunLoop.Port { _, portMessage in
                if portMessage.id == kCheckinMessage {
                    // Get the worker thread's communications port. Retain and save it for later use.
                    distantPort.value = portMessage.replyPort
                }
            }
            // Install the port as an input source on the current run loop.
            CFRunLoopAddSource(CFRunLoopGetCurrent(), myPort, kCFRunLoopDefaultMode)
            let worker = launchThread(with: myPort)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            try #require(distantPort.value).send(RunLoop.PortMessage(id: exitMessage))
            #expect(try worker.join() == 1)
        }
    }
}
