// Rules proved here:
// - Each thread has one loop, always the same object. Every thread can get the main loop.
// - Any thread may add, remove, query, signal and invalidate items, set timers' dates, wake and stop the loop, and queue work.
// - The end of a thread ends its loop. It refuses new items and releases its items, which stay valid. Queries, stops and wake-ups of
//   an ended loop are harmless.
// - A loop and its items retain one another until an item is removed, and nothing leaks.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.threads)) struct `A loop and its thread` {
    @Test func `a thread has one loop, and it stays the same`() throws {
        try onFreshThread { loop in
            #expect(RunLoop.current === loop)
            loop.addIdleSource()
            _ = loop.run(for: .zero)
            #expect(RunLoop.current === loop)
            loop.atFirst(.beforeTimers) { #expect(RunLoop.current === loop) }
            _ = loop.run(for: .zero)
        }
    }

    /// AddressSanitizer sees it if the loop looks at a timer that it has released.
    @Test func `a last callout at a loop's end finds no timer`() throws {
        let found = Box("")
        try onFreshThread { loop in
            loop.add(RunLoop.Timer(fireAt: .now + .seconds(1_000)) { _ in })
            loop.add(RunLoop.CustomSource(cancel: { loop, _ in found.value = "\(loop.nextTimerFire().map { _ in 1 } ?? 0)" }, perform: {}))
            _ = loop.run(for: .zero)
        }
        #expect(found.value == "0")
    }

    @Test func `threads have different loops`() throws {
        try onFreshThread { first in
            try onFreshThread { second in
                #expect(first !== second)
                #expect(!first.isCurrent)
                #expect(second.isCurrent)
            }
            #expect(first.isCurrent)
        }
    }

    @Test func `every thread can get the main loop, which is no other thread's loop`() throws {
        let main = RunLoop.main
        try onFreshThread { loop in
            #expect(RunLoop.main === main)
            #expect(loop !== main)
            #expect(!RunLoop.main.isCurrent)
            #expect(RunLoop.main.isValid)
        }
    }

    @Test func `a loop is valid until its thread has ended`() throws {
        let loop = try onFreshThread { loop in
            #expect(loop.isValid)
            return loop
        }
        #expect(!loop.isValid)
        #expect(!loop.isCurrent)
    }

    @Test func `a later thread has a new loop`() throws {
        // The system may reuse a thread's handle, but the loop must be new.
        let first = try onFreshThread { $0 }
        for _ in 1...20 {
            try onFreshThread { loop in
                #expect(loop !== first)
                #expect(loop.isValid)
                #expect(loop.modes == [.default])
                #expect(!first.isCurrent)
            }
        }
    }

    // MARK: Any thread

    @Test func `any thread may query the loop`() throws {
        let source = RunLoop.CustomSource {}
        let running = RunningLoop(mode: "running") { loop in
            loop.add(source, forMode: "running")
            loop.addCommonMode("running")
        }
        try waitUntilAsleep(running.loop)
        let loop = running.loop
        #expect(loop.currentMode == "running")
        #expect(loop.runDepth == 1)
        #expect(loop.modes == [.default, "running"])
        #expect(loop.commonModes == [.default, "running"])
        #expect(loop.contains(source, forMode: "running"))
        #expect(!loop.contains(source))
        #expect(loop.nextTimerFire(forMode: "running") == nil)
        #expect(!loop.debugDescription.isEmpty)
        try running.end()
        #expect(loop.currentMode == nil)
        #expect(loop.runDepth == 0)
    }

    @Test func `many threads may use a loop in every way at once`() throws {
        let performed = Counter()
        let (rounds, count) = (300, 4)
        let running = RunningLoop()
        let loop = running.loop
        let workers = (0..<count).map { worker in
            plainThread {
                let mode = RunLoop.Mode("mode \(worker)")
                for round in 0..<rounds {
                    let source = RunLoop.CustomSource { performed.increment() }
                    let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
                    let observer = RunLoop.Observer(activities: .beforeTimers) { _, _ in }
                    loop.add(source, forMode: round % 2 == 0 ? .default : .common)
                    loop.add(timer)
                    loop.add(observer)
                    loop.add(source, forMode: mode)
                    source.signal()
                    loop.wakeUp()
                    timer.nextFire = .now + .seconds(100)
                    _ = (loop.contains(source), loop.modes, loop.commonModes, loop.currentMode, loop.isWaiting, loop.nextTimerFire())
                    if round % 50 == 0 { loop.addCommonMode(mode) }
                    loop.performBlock {}
                    loop.perform { performed.increment() }
                    loop.perform(after: .zero) {}.cancel()
                    loop.keepAlive().cancel()
                    loop.remove(timer)
                    loop.remove(source, forMode: mode)
                    if round % 3 == 0 { loop.remove(observer) } else { observer.invalidate() }
                    timer.invalidate()
                    source.invalidate()
                }
            }
        }
        for worker in workers { try worker.join() }
        #expect(try running.end() == .stopped)
        // Every perform has run, and some of the sources.
        #expect(performed.value >= rounds * count)
        #expect(performed.value <= 2 * rounds * count)
    }

    // MARK: The end

    @Test func `an ended loop answers every query and refuses every item`() throws {
        let loop = try onFreshThread { loop in
            loop.addIdleSource()
            loop.addTimer(at: .distantFuture) { _ in }
            loop.addCommonMode("joined")
            return loop
        }
        #expect(!loop.isValid)
        #expect(loop.currentMode == nil)
        #expect(loop.runDepth == 0)
        #expect(!loop.isWaiting)
        #expect(!loop.isCurrent)
        _ = (loop.modes, loop.commonModes, loop.debugDescription, loop.statistics)
        #expect(loop.nextTimerFire() == nil)
        loop.stop()
        loop.stop(sticky: true)
        loop.wakeUp()
        loop.addCommonMode("late")
        let source = RunLoop.CustomSource(schedule: { _, _ in Issue.record("scheduled in an ended loop") }, perform: {})
        #expect(!loop.add(source))
        #expect(!loop.add(source, forMode: .common))
        #expect(!loop.perform {})
        #expect(!loop.performBlock {})
        #expect(!loop.perform(after: .zero) {}.isValid)
        #expect(source.isValid)
    }

    @Test func `an ended loop releases its items`() throws {
        let (source, timer, observer) = (
            WeakReference<RunLoop.CustomSource>(), WeakReference<RunLoop.Timer>(), WeakReference<RunLoop.Observer>()
        )
        let loop = try onFreshThread { loop in
            source.value = loop.addIdleSource(forMode: .common)
            timer.value = loop.addTimer(at: .distantFuture) { _ in }
            observer.value = loop.atFirst(.exit) {}
            #expect(source.value != nil)
            #expect(timer.value != nil)
            #expect(observer.value != nil)
            return loop
        }
        #expect(source.value == nil)
        #expect(timer.value == nil)
        #expect(observer.value == nil)
        withExtendedLifetime(loop) {}
    }

    @Test func `a loop that nothing retains is released with its thread`() throws {
        let loop = WeakReference<RunLoop>()
        try onFreshThread { current in
            loop.value = current
            current.addIdleSource()
            current.performBlock {}
            current.perform(after: .seconds(1)) {}
            _ = current.run(for: .zero)
        }
        #expect(loop.value == nil)
    }

    @Test func `an item does not retain an ended loop`() throws {
        let loop = WeakReference<RunLoop>()
        let source = RunLoop.CustomSource {}
        let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
        let observer = RunLoop.Observer(activities: .all) { _, _ in }
        try onFreshThread { current in
            loop.value = current
            current.add(source)
            current.add(timer)
            current.add(observer)
        }
        #expect(loop.value == nil)
        withExtendedLifetime((source, timer, observer)) {}
    }

    // MARK: Ownership

    @Test(arguments: ["source", "timer", "observer"], ["remove", "invalidate"])
    func `a loop retains an item until it is removed or invalidated:`(_ kind: String, _ way: String) throws {
        try inManualTime { loop, clock, trace in
            let canary = Box<Canary?>(Canary { trace.add("released") })
            let taken = makeItem(kind, in: loop, canary.value!)
            canary.value = nil
            #expect(trace.take() == "")
            taken(way)
            #expect(trace.take() == "released")
        }
    }

    @Test(arguments: ["source", "timer", "observer"])
    func `an invalidated item releases its handler, even if the item is still retained:`(_ kind: String) throws {
        try inManualTime { loop, clock, trace in
            let canary = Box<Canary?>(Canary { trace.add("released") })
            let source = RunLoop.CustomSource { [canary = canary.value!] in canary.touch() }
            let timer = RunLoop.Timer(fireAt: .distantFuture) { [canary = canary.value!] _ in canary.touch() }
            let observer = RunLoop.Observer(activities: .all) { [canary = canary.value!] _, _ in canary.touch() }
            canary.value = nil
            loop.add(source)
            loop.add(timer)
            loop.add(observer)
            if kind != "source" { source.invalidate() }
            if kind != "timer" { timer.invalidate() }
            if kind != "observer" { observer.invalidate() }
            #expect(trace.take() == "")
            switch kind {
            case "source": source.invalidate()
            case "timer": timer.invalidate()
            default: observer.invalidate()
            }
            #expect(trace.take() == "released")
            withExtendedLifetime((source, timer, observer)) {}
        }
    }

    @Test func `an item that invalidates itself retains its handler until the callout has returned`() throws {
        try inManualTime { loop, clock, trace in
            let canary = Box<Canary?>(Canary { trace.add("released") })
            loop.addSource(signaled: true) { [canary = canary.value!] source in
                source.invalidate()
                trace.add("still here")
                canary.touch()
            }
            canary.value = nil
            #expect(loop.run() == .finished)
            #expect(trace.take() == "still here released")
        }
    }

    /// Handlers may own objects that only the loop's thread may touch.
    @Test(arguments: ["source", "timer", "observer"])
    func `if another thread invalidates an item, its handler is released on the loop's thread:`(_ kind: String) throws {
        let threads = Box<[UInt]>([])
        let released = Gate()
        let canary = Box<Canary?>(
            Canary {
                threads.value.append(currentThreadID())
                released.open()
            })
        let running = RunningLoop()
        let taken = makeItem(kind, in: running.loop, canary.value!)
        canary.value = nil
        // Waits until the loop has carried out the addition, and has notified the observer after a sleep. Otherwise this thread would release the
        // handler.
        for _ in 0..<2 {
            try running.loop.performAndWait {}
            try waitUntilAsleep(running.loop)
        }
        taken("invalidate")
        running.loop.wakeUp()
        released.wait()
        #expect(threads.value == [running.threadID])
        try running.end()
    }
}

/// Adds an item whose handler retains `canary`, and returns a closure that removes or invalidates it. Only the loop retains the item.
private func makeItem(_ kind: String, in loop: RunLoop, _ canary: Canary) -> @Sendable (String) -> Void {
    switch kind {
    case "source":
        let source = RunLoop.CustomSource { canary.touch() }
        loop.add(source)
        return { [weak source] way in way == "remove" ? loop.remove(source!) : source!.invalidate() }
    case "timer":
        let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in canary.touch() }
        loop.add(timer)
        return { [weak timer] way in way == "remove" ? loop.remove(timer!) : timer!.invalidate() }
    default:
        let observer = RunLoop.Observer(activities: .afterWaiting) { _, _ in canary.touch() }
        loop.add(observer)
        return { [weak observer] way in way == "remove" ? loop.remove(observer!) : observer!.invalidate() }
    }
}
