// The subject again, through the functions of EventLoopCF. Its callbacks live as `CFEngine`'s.

internal import EventLoop
internal import EventLoopCF
internal import EventLoopTestSupport

struct NamesEngine: Engine {
    private enum Item: Sendable {
        case source(CFRunLoopSource)
        case port(CFRunLoopSource, PortPipe)
        case timer(CFRunLoopTimer)
        case observer(CFRunLoopObserver)
    }

    private let loop: CFRunLoop
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

    func onCallingThread() -> any Engine { NamesEngine(items: items, beginning: beginning) }
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
        let callbacks = Callbacks(schedule: schedule, cancel: cancel, perform: perform)
        var context = CFRunLoopSourceContext()
        context.info = Unmanaged.passUnretained(callbacks).toOpaque()
        context.retain = { UnsafeRawPointer(Unmanaged<Callbacks>.fromOpaque($0!).retain().toOpaque()) }
        context.release = { Unmanaged<Callbacks>.fromOpaque($0!).release() }
        context.schedule = { info, _, mode in Callbacks.of(info).schedule(mode!.rawValue) }
        context.cancel = { info, _, mode in Callbacks.of(info).cancel(mode!.rawValue) }
        context.perform = { info in Callbacks.of(info).perform() }
        items[name] = .source(withExtendedLifetime(callbacks) { CFRunLoopSourceCreate(nil, order, &context) })
    }

    func makeTimer(
        _ name: String, fireAtMilliseconds: Double, intervalMilliseconds: Double?, order: Int, handler: @escaping @Sendable () -> Void
    ) {
        let interval = (intervalMilliseconds ?? 0) / 1000
        items[name] = .timer(CFRunLoopTimerCreateWithHandler(nil, date(fireAtMilliseconds), interval, 0, order) { _ in handler() })
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
        case .source(let source), .port(let source, _): CFRunLoopAddSource(loop, source, CFRunLoopMode(mode))
        case .timer(let timer): CFRunLoopAddTimer(loop, timer, CFRunLoopMode(mode))
        case .observer(let observer): CFRunLoopAddObserver(loop, observer, CFRunLoopMode(mode))
        }
    }

    func remove(_ name: String, from mode: String) {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopRemoveSource(loop, source, CFRunLoopMode(mode))
        case .timer(let timer): CFRunLoopRemoveTimer(loop, timer, CFRunLoopMode(mode))
        case .observer(let observer): CFRunLoopRemoveObserver(loop, observer, CFRunLoopMode(mode))
        }
    }

    func contains(_ name: String, in mode: String) -> Bool {
        switch items[name] {
        case .source(let source), .port(let source, _): CFRunLoopContainsSource(loop, source, CFRunLoopMode(mode))
        case .timer(let timer): CFRunLoopContainsTimer(loop, timer, CFRunLoopMode(mode))
        case .observer(let observer): CFRunLoopContainsObserver(loop, observer, CFRunLoopMode(mode))
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

    /// There are no sources of version 1, so the package's own source is added with Core Foundation's name.
    func makePort(_ name: String, handler: @escaping @Sendable () -> Void) {
        let pipe = PortPipe()
        // A pipe can be watched.
        let port = try! RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, label: name) { _, _ in
            pipe.readAll()
            handler()
        }
        items[name] = .port(port, pipe)
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
        let date = CFRunLoopGetNextTimerFireDate(loop, CFRunLoopMode(mode))
        return date == 0 ? nil : milliseconds(date)
    }

    func performBlock(in modes: [String], _ block: @escaping @Sendable () -> Void) {
        if modes.count == 1 {
            CFRunLoopPerformBlock(loop, CFRunLoopMode(modes[0]), block)
        } else {
            CFRunLoopPerformBlock(loop, modes.map { CFRunLoopMode($0) }, block)
        }
    }

    // MARK: The loop

    func run(in mode: String, limitSeconds: Double, returnAfterSource: Bool) -> Outcome {
        switch CFRunLoopRunInMode(CFRunLoopMode(mode), limitSeconds, returnAfterSource) {
        case .finished: .finished
        case .stopped: .stopped
        case .timedOut: .timedOut
        case .handledSource: .handledSource
        }
    }

    func runUnconditionally() { CFRunLoopRun() }
    func stop() { CFRunLoopStop(loop) }
    func wakeUp() { CFRunLoopWakeUp(loop) }

    var currentMode: String? { CFRunLoopCopyCurrentMode(loop)?.rawValue }
    var isWaiting: Bool { CFRunLoopIsWaiting(loop) }
    var modes: Set<String> { Set(CFRunLoopCopyAllModes(loop).map(\.rawValue)) }
    func addCommonMode(_ mode: String) { CFRunLoopAddCommonMode(loop, CFRunLoopMode(mode)) }
}

private final class Callbacks: Sendable {
    let schedule: @Sendable (String) -> Void
    let cancel: @Sendable (String) -> Void
    let perform: @Sendable () -> Void

    init(
        schedule: @escaping @Sendable (String) -> Void, cancel: @escaping @Sendable (String) -> Void,
        perform: @escaping @Sendable () -> Void
    ) {
        (self.schedule, self.cancel, self.perform) = (schedule, cancel, perform)
    }

    static func of(_ info: UnsafeMutableRawPointer?) -> Callbacks {
        Unmanaged<Callbacks>.fromOpaque(info!).takeUnretainedValue()
    }
}

private let activityLetters: [String: CFRunLoopActivity] = [
    "E": .entry, "T": .beforeTimers, "S": .beforeSources, "W": .beforeWaiting, "A": .afterWaiting, "X": .exit,
]
