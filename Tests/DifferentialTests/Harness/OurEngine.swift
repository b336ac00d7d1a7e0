// The subject: the `RunLoop` of this package.

internal import EventLoop
internal import EventLoopTestSupport

struct OurEngine: Engine {
    private enum Item: Sendable {
        case source(RunLoop.CustomSource)
        case port(RunLoop.DescriptorSource, PortPipe)
        case timer(RunLoop.Timer)
        case observer(RunLoop.Observer)
    }

    private let loop: RunLoop
    private let items: NamedItems<Item>
    private let beginning: RunLoop.Instant

    /// Call this on the thread whose loop the engine uses.
    init() {
        self.init(items: NamedItems(), beginning: .now)
    }

    private init(items: NamedItems<Item>, beginning: RunLoop.Instant) {
        loop = RunLoop.current
        self.items = items
        self.beginning = beginning
    }

    func onCallingThread() -> any Engine { OurEngine(items: items, beginning: beginning) }
    func forgetItems() { items.removeAll() }

    var elapsedMilliseconds: Double { milliseconds(.now) }
    private func milliseconds(_ instant: RunLoop.Instant) -> Double { beginning.duration(to: instant) / .milliseconds(1) }
    private func instant(_ milliseconds: Double) -> RunLoop.Instant { beginning.advanced(by: .milliseconds(1) * milliseconds) }

    // MARK: Items

    func makeSource(
        _ name: String, order: Int,
        schedule: @escaping @Sendable (String) -> Void, cancel: @escaping @Sendable (String) -> Void,
        perform: @escaping @Sendable () -> Void
    ) {
        items[name] = .source(
            RunLoop.CustomSource(
                order: order, label: name, schedule: { schedule($1.rawValue) }, cancel: { cancel($1.rawValue) }, perform: perform))
    }

    func makeTimer(
        _ name: String, fireAtMilliseconds: Double, intervalMilliseconds: Double?, order: Int, handler: @escaping @Sendable () -> Void
    ) {
        items[name] = .timer(
            RunLoop.Timer(
                fireAt: instant(fireAtMilliseconds), interval: intervalMilliseconds.map { .milliseconds(1) * $0 }, order: order, label: name
            ) { _ in handler() })
    }

    func makeObserver(
        _ name: String, activities: String, repeats: Bool, order: Int, handler: @escaping @Sendable (String) -> Void
    ) {
        let mask = activityLetters.reduce(into: RunLoop.Activity()) { if activities.contains($1.key) { $0.insert($1.value) } }
        items[name] = .observer(
            RunLoop.Observer(activities: mask, repeats: repeats, order: order, label: name) { _, activity in
                handler(activityLetters.first { $0.value == activity }?.key ?? "?\(activity.rawValue)")
            })
    }

    func add(_ name: String, to mode: String) {
        switch items[name] {
        case .source(let source): loop.add(source, forMode: RunLoop.Mode(mode))
        case .port(let port, _): loop.add(port, forMode: RunLoop.Mode(mode))
        case .timer(let timer): loop.add(timer, forMode: RunLoop.Mode(mode))
        case .observer(let observer): loop.add(observer, forMode: RunLoop.Mode(mode))
        }
    }

    func remove(_ name: String, from mode: String) {
        switch items[name] {
        case .source(let source): loop.remove(source, forMode: RunLoop.Mode(mode))
        case .port(let port, _): loop.remove(port, forMode: RunLoop.Mode(mode))
        case .timer(let timer): loop.remove(timer, forMode: RunLoop.Mode(mode))
        case .observer(let observer): loop.remove(observer, forMode: RunLoop.Mode(mode))
        }
    }

    func contains(_ name: String, in mode: String) -> Bool {
        switch items[name] {
        case .source(let source): loop.contains(source, forMode: RunLoop.Mode(mode))
        case .port(let port, _): loop.contains(port, forMode: RunLoop.Mode(mode))
        case .timer(let timer): loop.contains(timer, forMode: RunLoop.Mode(mode))
        case .observer(let observer): loop.contains(observer, forMode: RunLoop.Mode(mode))
        }
    }

    func invalidate(_ name: String) {
        switch items[name] {
        case .source(let source): source.invalidate()
        case .port(let port, _): port.invalidate()
        case .timer(let timer): timer.invalidate()
        case .observer(let observer): observer.invalidate()
        }
    }

    func isValid(_ name: String) -> Bool {
        switch items[name] {
        case .source(let source): source.isValid
        case .port(let port, _): port.isValid
        case .timer(let timer): timer.isValid
        case .observer(let observer): observer.isValid
        }
    }

    func signal(_ source: String) {
        guard case .source(let source) = items[source] else { fatalError("only sources are signaled") }
        source.signal()
    }

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

    private func timer(_ name: String) -> RunLoop.Timer {
        guard case .timer(let timer) = items[name] else { fatalError("\(name) is no timer") }
        return timer
    }

    func setNextFire(_ name: String, atMilliseconds: Double) { timer(name).nextFire = instant(atMilliseconds) }
    func nextFireMilliseconds(_ name: String) -> Double { milliseconds(timer(name).nextFire) }
    func nextTimerFireMilliseconds(in mode: String) -> Double? { loop.nextTimerFire(forMode: RunLoop.Mode(mode)).map { milliseconds($0) } }

    func performBlock(in modes: [String], _ block: @escaping @Sendable () -> Void) {
        loop.performBlock(inModes: modes.map { RunLoop.Mode($0) }, block)
    }

    // MARK: The loop

    func run(in mode: String, limitSeconds: Double, returnAfterSource: Bool) -> Outcome {
        // A `Duration` cannot be infinite.
        let result =
            limitSeconds.isInfinite
            ? loop.run(mode: RunLoop.Mode(mode), until: .distantFuture, returnAfterSourceHandled: returnAfterSource)
            : loop.run(mode: RunLoop.Mode(mode), for: .seconds(1) * limitSeconds, returnAfterSourceHandled: returnAfterSource)
        return switch result {
        case .finished: .finished
        case .stopped: .stopped
        case .timedOut: .timedOut
        case .handledSource: .handledSource
        }
    }

    func runUnconditionally() { loop.run() }
    func stop() { loop.stop() }
    func wakeUp() { loop.wakeUp() }

    var currentMode: String? { loop.currentMode?.rawValue }
    var isWaiting: Bool { loop.isWaiting }
    var modes: Set<String> { Set(loop.modes.map(\.rawValue)) }
    func addCommonMode(_ mode: String) { loop.addCommonMode(RunLoop.Mode(mode)) }
}

private let activityLetters: [String: RunLoop.Activity] = [
    "E": .entry, "T": .beforeTimers, "S": .beforeSources, "W": .beforeWaiting, "A": .afterWaiting, "X": .exit,
]
