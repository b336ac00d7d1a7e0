// The words that scenarios are told in. A stage adds to an engine what both sides share: the trace, counting of calls,
// other threads, and time given as "from now".
//
// What the trace says, in the default mode (in a mode m each word of the loop is `m:` and the word):
//
//     E T S W A X     an observer made by `observe()` heard this activity
//     a               the source, timer or block named a was called
//     +a@m  -a@m      the source a was scheduled in, cancelled from the mode m (only of a `watchedSource`)
//     =stopped        a run returned this
//     mode:m          what a scenario asks for by itself: `note`, `ask…`

internal import EventLoopTestSupport
internal import Testing

#if canImport(Glibc)
internal import Glibc
#else
internal import Darwin
#endif

final class Stage: Sendable {
    /// A date that was over before the scenario began.
    static let past = -1000.0
    /// A date that no scenario lives to see.
    static let never = 3_600_000.0

    private let engine: any Engine
    private let shared: Shared
    /// How many milliseconds of real time a millisecond of the scenario lasts.
    private let stretch: Double

    private final class Shared: Sendable {
        let trace = Trace()
        let counts = Locked<[String: Int]>([:])
        let marked = Locked(0.0)
        let needsRescue = Locked(false)
        let helpers = Locked<[JoinableThread<Void>]>([])
    }

    convenience init(_ engine: any Engine, stretch: Double = 1) {
        self.init(engine, shared: Shared(), stretch: stretch)
    }

    private init(_ engine: any Engine, shared: Shared, stretch: Double) {
        self.engine = engine
        self.shared = shared
        self.stretch = stretch
    }

    /// All that was recorded until now.
    var trace: String { shared.trace.description }

    /// Waits for the scenario's other threads.
    func joinThreads() {
        for helper in shared.helpers.withLock({ $0 }) { try! helper.join() }  // their bodies throw nothing
    }

    /// Lets go of all items, whose closures lead back to this stage.
    func forgetItems() { engine.forgetItems() }

    // MARK: What the trace says

    func note(_ word: String) { shared.trace.add(word) }
    func note(_ word: String, _ value: some Any) { note("\(word):\(value)") }
    func askCurrentMode() { note("mode", engine.currentMode ?? "none") }
    func askIsWaiting() { note("waiting", engine.isWaiting) }
    /// Sorted, since a set of modes has no order.
    func askModes(except hidden: String? = nil) { note("modes", engine.modes.filter { $0 != hidden }.sorted().joined(separator: ",")) }
    func askContains(_ name: String, in mode: String = "default") { note("\(name)@\(mode)", contains(name, in: mode)) }
    func askIsValid(_ name: String) { note("\(name)-valid", isValid(name)) }
    /// Joins what `body` recorded into the trace in alphabetical order: for calls whose order is left open.
    func sorted(_ body: () -> Void) {
        let before = shared.trace.list
        body()
        let all = shared.trace.list
        _ = shared.trace.take()
        for word in before + all[before.count...].sorted() { note(word) }
    }

    private func count(_ key: String) -> Int {
        shared.counts.withLock { counts in
            counts[key, default: 0] += 1
            return counts[key]!
        }
    }

    // MARK: Items

    /// Makes a custom source and adds it to `modes`. `perform` is told how often it was called.
    func source(_ name: String, order: Int = 0, in modes: [String] = ["default"], perform: (@Sendable (_ call: Int) -> Void)? = nil) {
        makeSource(name, order: order, schedule: { _ in }, cancel: { _ in }, perform: perform)
        for mode in modes { add(name, to: mode) }
    }

    /// The same for a source whose scheduling and cancelling are recorded.
    func watchedSource(
        _ name: String, order: Int = 0, in modes: [String] = ["default"], perform: (@Sendable (_ call: Int) -> Void)? = nil,
        schedule: (@Sendable (_ mode: String) -> Void)? = nil, cancel: (@Sendable (_ mode: String) -> Void)? = nil
    ) {
        makeSource(
            name, order: order,
            schedule: { [self] mode in
                note("+\(name)@\(mode)")
                schedule?(mode)
            },
            cancel: { [self] mode in
                note("-\(name)@\(mode)")
                cancel?(mode)
            }, perform: perform)
        for mode in modes { add(name, to: mode) }
    }

    private func makeSource(
        _ name: String, order: Int, schedule: @escaping @Sendable (String) -> Void, cancel: @escaping @Sendable (String) -> Void,
        perform: (@Sendable (_ call: Int) -> Void)?
    ) {
        engine.makeSource(name, order: order, schedule: schedule, cancel: cancel) { [self] in
            note(name)
            perform?(count(name))
        }
    }

    /// Makes a source that the kernel signals, on a pipe, and adds it to `modes`.
    func port(_ name: String, in modes: [String] = ["default"], handler: (@Sendable (_ call: Int) -> Void)? = nil) {
        engine.makePort(name) { [self] in
            note(name)
            handler?(count(name))
        }
        for mode in modes { add(name, to: mode) }
    }

    /// Makes the ports ready.
    func poke(_ ports: String...) { for port in ports { engine.poke(port) } }

    /// A source that leaves nothing in the trace, for those that perform no one knows how often.
    func quietSource(_ name: String, perform: @escaping @Sendable () -> Void) {
        engine.makeSource(name, order: 0, schedule: { _ in }, cancel: { _ in }, perform: perform)
        add(name)
    }

    /// A source that nobody signals: it keeps its mode from being empty.
    func keepAlive(_ mode: String = "default") { source("keeper-of-\(mode)", in: [mode]) }

    /// Makes a timer whose first date is `milliseconds` from now and adds it to `modes`.
    func timer(
        _ name: String, in milliseconds: Double, interval: Double? = nil, order: Int = 0, modes: [String] = ["default"],
        handler: (@Sendable (_ call: Int) -> Void)? = nil
    ) {
        engine.makeTimer(
            name, fireAtMilliseconds: (elapsed + milliseconds) * stretch, intervalMilliseconds: interval.map { $0 * stretch }, order: order,
            handler: { [self] in
                note(name)
                handler?(count(name))
            })
        for mode in modes { add(name, to: mode) }
    }

    /// A timer that is due at once. CF arms a kernel timer with the past date, which may take a moment to be seen.
    func dueTimer(
        _ name: String, interval: Double? = nil, modes: [String] = ["default"], handler: (@Sendable (_ call: Int) -> Void)? = nil
    ) {
        timer(name, in: Self.past, interval: interval, modes: modes, handler: handler)
        work(0.1)
    }

    /// Records every activity of `mode` by its letter; `handler` is told which and how often, as "W2".
    func observe(_ mode: String = "default", order: Int = 0, handler: (@Sendable (_ at: String) -> Void)? = nil) {
        let name = "observer-of-\(mode)"
        engine.makeObserver(name, activities: "ETSWAX", repeats: true, order: order) { [self] letter in
            note(prefix(mode) + letter)
            handler?("\(letter)\(count(name + letter))")
        }
        add(name, to: mode)
    }

    /// An observer by name, whose words are the name and the letter, as "o:W".
    func observer(
        _ name: String, _ activities: String, repeats: Bool = true, order: Int = 0, in modes: [String] = ["default"],
        handler: (@Sendable (_ at: String) -> Void)? = nil
    ) {
        engine.makeObserver(name, activities: activities, repeats: repeats, order: order) { [self] letter in
            note(name, letter)
            handler?("\(letter)\(count(name + letter))")
        }
        for mode in modes { add(name, to: mode) }
    }

    /// An observer that leaves nothing in the trace.
    func quietObserver(_ name: String, _ activities: String, order: Int, in mode: String, handler: @escaping @Sendable () -> Void) {
        engine.makeObserver(name, activities: activities, repeats: true, order: order) { _ in handler() }
        add(name, to: mode)
    }

    func add(_ name: String, to mode: String = "default") { engine.add(name, to: mode) }
    func remove(_ name: String, from mode: String = "default") { engine.remove(name, from: mode) }
    func contains(_ name: String, in mode: String = "default") -> Bool { engine.contains(name, in: mode) }
    func invalidate(_ name: String) { engine.invalidate(name) }
    func isValid(_ name: String) -> Bool { engine.isValid(name) }

    /// Two signals never have the same time, by which both loops sort.
    func signal(_ sources: String...) {
        for source in sources {
            engine.signal(source)
            waitUntil(elapsed + 0.02)
        }
    }

    // MARK: Time

    /// In milliseconds of the scenario.
    var elapsed: Double { engine.elapsedMilliseconds / stretch }
    /// Blocks the thread, as work of a callout does, until the clock says so.
    func waitUntil(_ milliseconds: Double) {
        while elapsed < milliseconds { usleep(UInt32(max(1, min(milliseconds - elapsed, 5) * 1000))) }  // ends: the clock goes on
    }
    func work(_ milliseconds: Double) { waitUntil(elapsed + milliseconds) }
    /// Gives the timer the date that is `milliseconds` from now.
    func setNextFire(_ timer: String, in milliseconds: Double) {
        engine.setNextFire(timer, atMilliseconds: (elapsed + milliseconds) * stretch)
    }
    /// When the timer fires next, in milliseconds since the scenario began.
    func nextFire(_ timer: String) -> Double { engine.nextFireMilliseconds(timer) / stretch }
    /// Remembers the time for `noteGrid`.
    func mark() { shared.marked.withLock { $0 = elapsed } }
    /// Whether the timer's next date is later than the mark, and on the grid that has a slot at `first`. CF rounds dates
    /// to microseconds.
    func noteGrid(of timer: String, first: Double, interval: Double) {
        let next = nextFire(timer)
        let slots = (next - first) / interval
        note("after-mark", next > shared.marked.withLock { $0 })
        note("on-grid", slots > 0.5 && abs(slots - slots.rounded()) * interval < 0.5)
    }
    func nextTimerFire(in mode: String = "default") -> Double? { engine.nextTimerFireMilliseconds(in: mode).map { $0 / stretch } }

    // MARK: Blocks and runs

    func block(_ name: String, in modes: String..., body: (@Sendable () -> Void)? = nil) {
        engine.performBlock(in: modes.isEmpty ? ["default"] : modes) { [self] in
            note(name)
            body?()
        }
    }

    /// `limit` is in milliseconds. Without one the run is expected to end by itself; five minutes keep a mistake from hanging.
    /// With `hidesStops` the trace does not tell a stop from a passed limit.
    func run(_ mode: String = "default", limit: Double = 300_000, returnAfterSource: Bool = false, hidesStops: Bool = false) {
        let outcome = engine.run(in: mode, limitSeconds: limit * stretch / 1000, returnAfterSource: returnAfterSource)
        note("\(prefix(mode))=\(hidesStops && outcome == .stopped ? .timedOut : outcome)")
    }

    func runUnconditionally() {
        engine.runUnconditionally()
        note("=returned")
    }

    func stop() { engine.stop() }
    func wakeUp() { engine.wakeUp() }
    func addCommonMode(_ mode: String) { engine.addCommonMode(mode) }

    private func prefix(_ mode: String) -> String { mode == "default" ? "" : "\(mode):" }

    // MARK: Other threads

    /// Runs `body` on a new thread, with that thread's loop and the same items, and waits for the thread's end.
    func onAnotherThread(_ body: @escaping @Sendable (Stage) -> Void) {
        let helper = plainThread { [engine, shared, stretch] in
            body(Stage(engine.onCallingThread(), shared: shared, stretch: stretch))
        }
        try! helper.join()  // the body throws nothing
    }

    /// Runs `body` on a thread of its own once this loop sleeps. To be called on the loop's thread, before its run.
    func whenWaiting(_ body: @escaping @Sendable () -> Void) {
        let helper = plainThread { [self] in
            do { try EventLoopTestSupport.waitUntil("the loop sleeps") { engine.isWaiting } } catch { return note("never-waiting") }
            body()
        }
        shared.helpers.withLock { $0.append(helper) }
    }

    /// Calls `body`, a run. Should it not have returned by then, another thread says so and wakes the loop.
    func rescue(after milliseconds: Double, _ body: () -> Void) {
        shared.needsRescue.withLock { $0 = true }
        let deadline = elapsed + milliseconds
        let helper = plainThread { [self] in
            while elapsed < deadline { usleep(1000) }  // ends: the clock goes on
            guard shared.needsRescue.withLock({ $0 }) else { return }
            note("rescue")
            wakeUp()
        }
        body()
        shared.needsRescue.withLock { $0 = false }
        try! helper.join()  // its body throws nothing
    }
}
