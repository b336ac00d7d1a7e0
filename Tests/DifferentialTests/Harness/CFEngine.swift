// The reference: the real CFRunLoop of the toolchain's Foundation.

internal import CoreFoundation
internal import EventLoopTestSupport
internal import Foundation
internal import RealCFRunLoop

struct CFEngine: Engine {
    private enum Item {
        case source(CFRunLoopSource)
        case port(CFRunLoopSource, PortPipe)
        case timer(CFRunLoopTimer)
        case observer(CFRunLoopObserver)
    }

    // SAFETY: the Guide says that any thread may call Core Foundation's run-loop functions, except `run`; the thread that made this engine
    // calls `run`. The loop lives as long as its thread, and a scenario's other threads are joined before that thread ends. The loop is not
    // retained, since blocks, observers and timers that stay in the loop hold references to this engine.
    private unowned(unsafe) nonisolated(unsafe) let loop: CFRunLoop
    private let items: NamedItems<Item>
    private let beginning: CFAbsoluteTime

    /// Call this on the thread whose loop the engine uses.
    init() {
        self.init(items: NamedItems(), beginning: CFAbsoluteTimeGetCurrent())
    }

    private init(items: NamedItems<Item>, beginning: CFAbsoluteTime) {
        loop = CFRunLoopGetCurrent()
        self.items = items
        self.beginning = beginning
    }

    func onCallingThread() -> any Engine { CFEngine(items: items, beginning: beginning) }
    func forgetItems() { items.removeAll() }

    var elapsedMilliseconds: Double { milliseconds(CFAbsoluteTimeGetCurrent()) }
    private func milliseconds(_ date: CFAbsoluteTime) -> Double { (date - beginning) * 1000 }
    private func date(_ milliseconds: Double) -> CFAbsoluteTime { beginning + milliseconds / 1000 }

    // MARK: Items

    func makeSource(
        _ name: String, order: Int,
        schedule: @escaping @Sendable (String) -> Void, cancel: @escaping @Sendable (String) -> Void,
        perform: @escaping @Sendable () -> Void
    ) {
        items[name] = .source(
            realSource(order: order, schedule: { schedule(text($0)) }, cancel: { cancel(text($0)) }, perform: perform))
    }

    func makeTimer(
        _ name: String, fireAtMilliseconds: Double, intervalMilliseconds: Double?, order: Int, handler: @escaping @Sendable () -> Void
    ) {
        let interval = (intervalMilliseconds ?? 0) / 1000
        items[name] = .timer(
            CFRunLoopTimerCreateWithHandler(nil, date(fireAtMilliseconds), interval, 0, order) { _ in handler() })
    }

    func makeObserver(
        _ name: String, activities: String, repeats: Bool, order: Int, handler: @escaping @Sendable (String) -> Void
    ) {
        let mask = activityLetters.reduce(0) { activities.contains($1.key) ? $0 | $1.value.rawValue : $0 }
        items[name] = .observer(
            CFRunLoopObserverCreateWithHandler(nil, mask, repeats, order) { _, activity in
                handler(activityLetters.first { $0.value == activity }?.key ?? "?\(activity.rawValue)")
            })
    }

    func add(_ name: String, to mode: String) {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopAddSource(loop, source, realMode(mode))
        case .timer(let timer): CFRunLoopAddTimer(loop, timer, realMode(mode))
        case .observer(let observer): CFRunLoopAddObserver(loop, observer, realMode(mode))
        }
    }

    func remove(_ name: String, from mode: String) {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopRemoveSource(loop, source, realMode(mode))
        case .timer(let timer): CFRunLoopRemoveTimer(loop, timer, realMode(mode))
        case .observer(let observer): CFRunLoopRemoveObserver(loop, observer, realMode(mode))
        }
    }

    func contains(_ name: String, in mode: String) -> Bool {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopContainsSource(loop, source, realMode(mode))
        case .timer(let timer): CFRunLoopContainsTimer(loop, timer, realMode(mode))
        case .observer(let observer): CFRunLoopContainsObserver(loop, observer, realMode(mode))
        }
    }

    func invalidate(_ name: String) {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopSourceInvalidate(source)
        case .timer(let timer): CFRunLoopTimerInvalidate(timer)
        case .observer(let observer): CFRunLoopObserverInvalidate(observer)
        }
    }

    func isValid(_ name: String) -> Bool {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopSourceIsValid(source)
        case .timer(let timer): CFRunLoopTimerIsValid(timer)
        case .observer(let observer): CFRunLoopObserverIsValid(observer)
        }
    }

    func signal(_ source: String) {
        guard case .source(let source) = items[source] else { fatalError("only sources are signaled") }
        CFRunLoopSourceSignal(source)
    }

    func makePort(_ name: String, handler: @escaping @Sendable () -> Void) {
        let pipe = PortPipe()
        items[name] = .port(realPortSource(descriptor: pipe.readEnd, owner: pipe, perform: handler), pipe)
    }

    func poke(_ port: String) {
        guard case .port(_, let pipe) = items[port] else { fatalError("\(port) is no port") }
        pipe.write("8 bytes.")
    }

    private func timer(_ name: String) -> CFRunLoopTimer {
        guard case .timer(let timer) = items[name] else { fatalError("\(name) is no timer") }
        return timer
    }

    func setNextFire(_ name: String, atMilliseconds: Double) { CFRunLoopTimerSetNextFireDate(timer(name), date(atMilliseconds)) }
    func nextFireMilliseconds(_ name: String) -> Double { milliseconds(CFRunLoopTimerGetNextFireDate(timer(name))) }

    func nextTimerFireMilliseconds(in mode: String) -> Double? {
        let date = CFRunLoopGetNextTimerFireDate(loop, realMode(mode))
        return date == 0 ? nil : milliseconds(date)
    }

    func performBlock(in modes: [String], _ block: @escaping @Sendable () -> Void) {
        if modes.count == 1 {
            CFRunLoopPerformBlock(loop, realMode(modes[0]), block)
        } else {
            let names = modes.map { realMode($0) }
            let array = CFArrayCreateMutable(nil, names.count, [kCFTypeArrayCallBacks])
            withExtendedLifetime(names) {
                for name in names { CFArrayAppendValue(array, Unmanaged.passUnretained(name).toOpaque()) }
            }
            CFRunLoopPerformBlock(loop, array, block)
        }
    }

    // MARK: The loop

    func run(in mode: String, limitSeconds: Double, returnAfterSource: Bool) -> Outcome {
        let result = CFRunLoopRunInMode(realMode(mode), limitSeconds, returnAfterSource)
        return switch result {
        case .finished: .finished
        case .stopped: .stopped
        case .timedOut: .timedOut
        case .handledSource: .handledSource
        default: fatalError("CFRunLoopRunInMode returned \(result.rawValue)")
        }
    }

    func runUnconditionally() { CFRunLoopRun() }
    func stop() { CFRunLoopStop(loop) }
    func wakeUp() { CFRunLoopWakeUp(loop) }

    var currentMode: String? { CFRunLoopCopyCurrentMode(loop).map { text($0) } }
    var isWaiting: Bool { CFRunLoopIsWaiting(loop) }

    var modes: Set<String> {
        let array: CFArray = CFRunLoopCopyAllModes(loop)
        return Set(
            (0..<CFArrayGetCount(array)).map { index in
                text(Unmanaged<CFString>.fromOpaque(CFArrayGetValueAtIndex(array, index)!).takeUnretainedValue())
            })
    }

    func addCommonMode(_ mode: String) { CFRunLoopAddCommonMode(loop, realMode(mode)) }
}

private let activityLetters: [String: CFRunLoopActivity] = [
    "E": .entry, "T": .beforeTimers, "S": .beforeSources, "W": .beforeWaiting, "A": .afterWaiting, "X": .exit,
]

private func text(_ mode: CFString) -> String {
    if CFEqual(mode, kCFRunLoopDefaultMode) { return "default" }
    if CFEqual(mode, kCFRunLoopCommonModes) { return "common" }
    var buffer = [UInt8](repeating: 0, count: 128)
    let converted = buffer.withUnsafeMutableBytes {
        CFStringGetCString(mode, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count, CFStringBuiltInEncodings.UTF8.rawValue)
    }
    precondition(converted, "a scenario's mode has a short name")
    return String(decoding: buffer.prefix { $0 != 0 }, as: UTF8.self)
}
