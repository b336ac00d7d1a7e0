// The vocabulary of scenarios. To an engine, a stage adds the parts that both loops share: the trace, the counts of calls, other threads,
// and times relative to the present.
//
// The words of a trace in the default mode (in a mode m, each word of the loop is `m:` and the word):
//
//     E T S W A X     an observer made by `observe()` heard this activity
//     a               the source, timer or block named a was called
//     +a@m  -a@m      the source a was scheduled in, cancelled from the mode m (only of a `watchedSource`)
//     =stopped        a run returned this
//     mode:m          a word that the scenario itself records, with `note` or `ask…`

internal import EventLoopTestSupport
internal import Testing

#if canImport(Glibc)
internal import Glibc
#else
internal import Darwin
#endif

final class Stage: Sendable {
    /// A date before the scenario's beginning.
    static let past = -1000.0
    /// A date after any scenario's end.
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

    /// All words recorded so far.
    var trace: String { shared.trace.description }

    /// Waits for the scenario's other threads.
    func joinThreads() {
        for helper in shared.helpers.withLock({ $0 }) { try! helper.join() }  // their bodies throw nothing
    }

    /// Releases all items, whose closures refer to this stage.
    func forgetItems() { engine.forgetItems() }

    // MARK: Words of the trace

    func note(_ word: String) { shared.trace.add(word) }
    func note(_ word: String, _ value: some Any) { note("\(word):\(value)") }
    func askCurrentMode() { note("mode", engine.currentMode ?? "none") }
    func askIsWaiting() { note("waiting", engine.isWaiting) }
    /// Sorted, since a set of modes has no order.
    func askModes(except hidden: String? = nil) { note("modes", engine.modes.filter { $0 != hidden }.sorted().joined(separator: ",")) }
    func askContains(_ name: String, in mode: String = "default") { note("\(name)@\(mode)", contains(name, in: mode)) }
    func askIsValid(_ name: String) { note("\(name)-valid", isValid(name)) }
    /// Sorts the words that `body` records and adds them to the trace, for calls whose order is unspecified.
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

    /// Makes a custom source and adds it to `modes`. `perform` gets the number of calls so far.
    func source(_ name: String, order: Int = 0, in modes: [String] = ["default"], perform: (@Sendable (_ call: Int) -> Void)? = nil) {
        makeSource(name, order: order, schedule: { _ in }, cancel: { _ in }, perform: perform)
        for mode in modes { add(name, to: mode) }
    }

    /// The same, for a source whose schedule and cancel calls are recorded.
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

    /// Makes a source that the kernel makes ready, on a pipe, and adds it to `modes`.
    func port(_ name: String, in modes: [String] = ["default"], handler: (@Sendable (_ call: Int) -> Void)? = nil) {
        engine.makePort(name) { [self] in
            note(name)
            handler?(count(name))
        }
        for mode in modes { add(name, to: mode) }
    }

    /// Makes the ports ready.
    func poke(_ ports: String...) { for port in ports { engine.poke(port) } }

    /// A source that leaves no words in the trace, for sources that perform an unpredictable number of times.
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

    /// A timer that is due at once. CF arms a kernel timer with the past date; the kernel may take a moment to report it.
    func dueTimer(
        _ name: String, interval: Double? = nil, modes: [String] = ["default"], handler: (@Sendable (_ call: Int) -> Void)? = nil
    ) {
        timer(name, in: Self.past, interval: interval, modes: modes, handler: handler)
        work(0.1)
    }

    /// Records every activity of `mode` by its letter. `handler` gets the letter and the count, as "W2".
    func observe(_ mode: String = "default", order: Int = 0, handler: (@Sendable (_ at: String) -> Void)? = nil) {
        let name = "observer-of-\(mode)"
        engine.makeObserver(name, activities: "ETSWAX", repeats: true, order: order) { [self] letter in
            note(prefix(mode) + letter)
            handler?("\(letter)\(count(name + letter))")
        }
        add(name, to: mode)
    }

    /// A named observer, whose words are the name and the letter, as "o:W".
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

    /// An observer that leaves no words in the trace.
    func quietObserver(_ name: String, _ activities: String, order: Int, in mode: String, handler: @escaping @Sendable () -> Void) {
        engine.makeObserver(name, activities: activities, repeats: true, order: order) { _ in handler() }
        add(name, to: mode)
    }

    func add(_ name: String, to mode: String = "default") { engine.add(name, to: mode) }
    func remove(_ name: String, from mode: String = "default") { engine.remove(name, from: mode) }
    func contains(_ name: String, in mode: String = "default") -> Bool { engine.contains(name, in: mode) }
    func invalidate(_ name: String) { engine.invalidate(name) }
    func isValid(_ name: String) -> Bool { engine.isValid(name) }

    /// No two signals have the same time, because both loops sort by it.
    func signal(_ sources: String...) {
        for source in sources {
            engine.signal(source)
            waitUntil(elapsed + 0.02)
        }
    }

    // MARK: Time

    /// In milliseconds of the scenario.
    var elapsed: Double { engine.elapsedMilliseconds / stretch }
    /// Blocks the thread until the scenario's clock has advanced, as a callout's work does.
    func waitUntil(_ milliseconds: Double) {
        while elapsed < milliseconds { usleep(UInt32(max(1, min(milliseconds - elapsed, 5) * 1000))) }  // ends: the clock advances
    }
    func work(_ milliseconds: Double) { waitUntil(elapsed + milliseconds) }
    /// Gives the timer the date that is `milliseconds` from now.
    func setNextFire(_ timer: String, in milliseconds: Double) {
        engine.setNextFire(timer, atMilliseconds: (elapsed + milliseconds) * stretch)
    }
    /// The timer's next date, in milliseconds since the scenario began.
    func nextFire(_ timer: String) -> Double { engine.nextFireMilliseconds(timer) / stretch }
    /// Remembers the time for `noteGrid`.
    func mark() { shared.marked.withLock { $0 = elapsed } }
    /// Whether the timer's next date is later than the mark, and on the grid that has a slot at `first`. CF rounds dates to microseconds.
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

    /// `limit` is in milliseconds. Without a limit the run must end by itself; a limit of five minutes keeps a mistake from hanging. With
    /// `hidesStops`, the trace does not distinguish a stop from a passed limit.
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

    /// Runs `body` on a new thread, with that thread's loop and the same items, and waits for the thread to end.
    func onAnotherThread(_ body: @escaping @Sendable (Stage) -> Void) {
        let helper = plainThread { [engine, shared, stretch] in
            body(Stage(engine.onCallingThread(), shared: shared, stretch: stretch))
        }
        try! helper.join()  // the body throws nothing
    }

    /// Runs `body` on a thread of its own once this loop sleeps. Call this on the loop's thread, before its run.
    func whenWaiting(_ body: @escaping @Sendable () -> Void) {
        let helper = plainThread { [self] in
            do { try EventLoopTestSupport.waitUntil("the loop sleeps") { engine.isWaiting } } catch { return note("never-waiting") }
            body()
        }
        shared.helpers.withLock { $0.append(helper) }
    }

    /// Calls `body`, a run. If it has not returned in time, another thread reports that and wakes the loop.
    func rescue(after milliseconds: Double, _ body: () -> Void) {
        shared.needsRescue.withLock { $0 = true }
        let deadline = elapsed + milliseconds
        let helper = plainThread { [self] in
            while elapsed < deadline { usleep(1000) }  // ends: the clock advances
            guard shared.needsRescue.withLock({ $0 }) else { return }
            note("rescue")
            wakeUp()
        }
        body()
        shared.needsRescue.withLock { $0 = false }
        try! helper.join()  // its body throws nothing
    }
}
