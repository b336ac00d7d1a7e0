// Rules proved here, about contexts and attributes:
// - `retain` is called once, by Create, and its result is the `info` of every callback. `release` is called once, after the last callback.
// - A context can be read back; that of a timer or an observer until it is invalid, that of a source as long as it lives.
// - What Create gets can be read back. Sources of the package that this module did not make have an order of zero and an empty context.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

/// What `info` points to. `retain` returns another object than the one that the context was given.
private final class Info: Sendable {
    let calls = Trace()
    let releases = Counter()
    static func of(_ info: UnsafeRawPointer?) -> Info { Unmanaged<Info>.fromOpaque(info!).takeUnretainedValue() }
}

private final class Given: Sendable {
    let info = Info()
    let retains = Counter()
}

private let retain: @convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer? = { given in
    let given = Unmanaged<Given>.fromOpaque(given!).takeUnretainedValue()
    given.retains.increment()
    return UnsafeRawPointer(Unmanaged.passRetained(given.info).toOpaque())
}
private let release: @convention(c) (UnsafeRawPointer?) -> Void = { info in
    Info.of(info).releases.increment()
    Unmanaged<Info>.fromOpaque(info!).release()
}

private func pointer(_ object: AnyObject) -> UnsafeMutableRawPointer { Unmanaged.passUnretained(object).toOpaque() }

@Suite(.tags(.memory)) struct ContextTests {
    @Test func `a source passes what retain returned to its callbacks, and releases it once, when it is released`() throws {
        try onFreshThread { loop in
            let given = Given()
            var context = CFRunLoopSourceContext(
                version: 0, info: pointer(given), retain: retain, release: release, copyDescription: nil, equal: nil, hash: nil,
                schedule: { info, rl, mode in Info.of(info).calls.add("schedule:\(rl === RunLoop.current):\(mode!)") },
                cancel: { info, rl, mode in Info.of(info).calls.add("cancel:\(rl === RunLoop.current):\(mode!)") },
                perform: { Info.of($0).calls.add("perform") })
            do {
                let source = try #require(CFRunLoopSourceCreate(nil, 3, &context))
                #expect(given.retains.value == 1)
                CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
                CFRunLoopSourceSignal(source)
                #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
                CFRunLoopSourceInvalidate(source)
                CFRunLoopSourceInvalidate(source)
                #expect(!CFRunLoopSourceIsValid(source))
                var read = CFRunLoopSourceContext()
                CFRunLoopSourceGetContext(source, &read)
                #expect(read.info == pointer(given.info) && read.perform != nil && read.schedule != nil && read.cancel != nil)
                #expect(CFRunLoopSourceGetOrder(source) == 3)
                #expect(given.info.releases.value == 0)
            }
            #expect(given.info.calls.description == "schedule:true:default perform cancel:true:default")
            #expect(given.retains.value == 1 && given.info.releases.value == 1)
        }
    }

    @Test func `a source that nobody adds releases its info`() throws {
        let given = Given()
        var context = CFRunLoopSourceContext()
        (context.info, context.retain, context.release) = (pointer(given), retain, release)
        do { _ = CFRunLoopSourceCreate(nil, 0, &context) }
        #expect(given.info.releases.value == 1)
    }

    @Test func `a source without functions can be performed`() throws {
        try onFreshThread { loop in
            var context = CFRunLoopSourceContext()
            let source = CFRunLoopSourceCreate(nil, 0, &context)
            CFRunLoopAddSource(loop, source, kCFRunLoopCommonModes)
            CFRunLoopSourceSignal(source)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            CFRunLoopRemoveSource(loop, source, kCFRunLoopCommonModes)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
        }
    }

    @Test func `an observer passes what retain returned to its callback, and releases it once, when it is invalid`() throws {
        try onFreshThread { loop in
            let given = Given()
            var context = CFRunLoopObserverContext(
                version: 0, info: pointer(given), retain: retain, release: release, copyDescription: nil)
            let observer = try #require(
                CFRunLoopObserverCreate(
                    nil, CFRunLoopActivity.entry.rawValue | CFRunLoopActivity.exit.rawValue, true, -2,
                    { observer, activity, info in
                        Info.of(info).calls.add(letter(of: activity))
                        if activity == .exit { CFRunLoopObserverInvalidate(observer) }
                    }, &context))
            #expect(CFRunLoopObserverGetActivities(observer) == 0x81 && CFRunLoopObserverGetOrder(observer) == -2)
            #expect(CFRunLoopObserverDoesRepeat(observer) && CFRunLoopObserverIsValid(observer))
            CFRunLoopAddObserver(loop, observer, kCFRunLoopDefaultMode)
            #expect(CFRunLoopContainsObserver(loop, observer, kCFRunLoopDefaultMode))
            var read = CFRunLoopObserverContext()
            CFRunLoopObserverGetContext(observer, &read)
            #expect(read.info == pointer(given.info))
            loop.addIdleSource()
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false) == .timedOut)
            #expect(given.info.calls.description == "E X")
            #expect(given.retains.value == 1 && given.info.releases.value == 1)
            CFRunLoopObserverGetContext(observer, &read)
            #expect(read.info == nil && read.retain == nil)
            #expect(!CFRunLoopObserverIsValid(observer))
        }
    }

    @Test func `a timer passes what retain returned to its callback, and releases it once, when it is invalid`() throws {
        try onFreshThread { loop in
            let given = Given()
            var context = CFRunLoopTimerContext(version: 0, info: pointer(given), retain: retain, release: release, copyDescription: nil)
            let timer = try #require(
                CFRunLoopTimerCreate(
                    nil, CFAbsoluteTimeGetCurrent(), 0, 0, 4,
                    { timer, info in
                        var read = CFRunLoopTimerContext()
                        CFRunLoopTimerGetContext(timer, &read)
                        Info.of(info).calls.add("fired:\(read.info == info)")
                    }, &context))
            CFRunLoopAddTimer(loop, timer, kCFRunLoopDefaultMode)
            #expect(CFRunLoopContainsTimer(loop, timer, kCFRunLoopDefaultMode) && CFRunLoopTimerGetOrder(timer) == 4)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, false) == .finished)
            #expect(given.info.calls.description == "fired:true")
            #expect(given.retains.value == 1 && given.info.releases.value == 1)
            var read = CFRunLoopTimerContext()
            CFRunLoopTimerGetContext(timer, &read)
            #expect(read.info == nil && !CFRunLoopTimerIsValid(timer) && CFRunLoopTimerGetNextFireDate(timer) == 0)
        }
    }

    @Test func `a timer's dates, interval and tolerance are seconds`() throws {
        let date = CFAbsoluteTimeGetCurrent() + 3_600
        let timer = CFRunLoopTimerCreateWithHandler(nil, date, 10, 0, 0) { _ in }
        #expect(CFRunLoopTimerGetNextFireDate(timer) == date)
        #expect(CFRunLoopTimerGetInterval(timer) == 10 && CFRunLoopTimerDoesRepeat(timer))
        CFRunLoopTimerSetTolerance(timer, 2.5)
        #expect(CFRunLoopTimerGetTolerance(timer) == 2.5)
        CFRunLoopTimerSetNextFireDate(timer, date + 1)
        #expect(CFRunLoopTimerGetNextFireDate(timer) == date + 1)
        try onFreshThread { loop in
            #expect(CFRunLoopGetNextTimerFireDate(loop, kCFRunLoopDefaultMode) == 0)
            CFRunLoopAddTimer(loop, timer, kCFRunLoopDefaultMode)
            #expect(abs(CFRunLoopGetNextTimerFireDate(loop, kCFRunLoopDefaultMode) - date - 1) < 0.001)
            CFRunLoopRemoveTimer(loop, timer, kCFRunLoopDefaultMode)
        }
        let once = CFRunLoopTimerCreateWithHandler(nil, .infinity, -1, 0, 0) { _ in }
        #expect(!CFRunLoopTimerDoesRepeat(once) && CFRunLoopTimerGetInterval(once) == 0)
        #expect(CFRunLoopTimerGetNextFireDate(once) == .infinity)
        // The year 4001, which Foundation calls the distant future: this is no date.
        CFRunLoopTimerSetNextFireDate(once, .nan)
        #expect(CFRunLoopTimerGetNextFireDate(once) == 63_113_904_000)
        let past = CFRunLoopTimerCreateWithHandler(nil, 0.1, 0.3, 0, 0) { _ in }
        #expect(CFRunLoopTimerGetNextFireDate(past) == 0.1)
        CFRunLoopTimerInvalidate(past)
        CFRunLoopTimerInvalidate(once)
        CFRunLoopTimerInvalidate(timer)
    }

    @Test func `sources that this module did not make can be passed`() throws {
        try onFreshThread { loop in
            let calls = Counter()
            let own = RunLoop.CustomSource(order: 7) { calls.increment() }
            let port = RunLoop.Port { _, _ in calls.increment() }
            for source in [own, port] as [CFRunLoopSource] {
                CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
                #expect(CFRunLoopContainsSource(loop, source, kCFRunLoopDefaultMode))
                CFRunLoopSourceSignal(source)
                var read = CFRunLoopSourceContext()
                read.info = pointer(loop)
                CFRunLoopSourceGetContext(source, &read)
                #expect(read.info == nil)
            }
            #expect(CFRunLoopSourceGetOrder(own) == 7 && CFRunLoopSourceGetOrder(port) == 0)
            _ = CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            #expect(calls.value == 1)
            for source in [own, port] as [CFRunLoopSource] { CFRunLoopSourceInvalidate(source) }
        }
    }

    @Test func `types have numbers, and objects are equal only to themselves`() throws {
        try onFreshThread { loop in
            let timer = CFRunLoopTimerCreateWithHandler(nil, .infinity, 0, 0, 0) { _ in }
            let observer = CFRunLoopObserverCreateWithHandler(nil, CFRunLoopActivity.exit.rawValue, false, 0) { _, _ in }
            var context = CFRunLoopSourceContext()
            let (source, other) = (CFRunLoopSourceCreate(nil, 0, &context), CFRunLoopSourceCreate(nil, 0, &context))
            #expect(CFGetTypeID(loop) == CFRunLoopGetTypeID() && CFGetTypeID(source) == CFRunLoopSourceGetTypeID())
            #expect(CFGetTypeID(timer) == CFRunLoopTimerGetTypeID() && CFGetTypeID(observer) == CFRunLoopObserverGetTypeID())
            #expect(Set(([loop, source!, timer!, observer!] as [AnyObject]).map { CFGetTypeID($0) }).count == 4)
            #expect(CFEqual(source, source) && !CFEqual(source, other) && CFHash(source) == CFHash(source))
            #expect(CFEqual(CFRunLoopGetCurrent(), loop) && CFRunLoopGetCurrent() === loop)
            CFRunLoopTimerInvalidate(timer)
        }
    }
}
