// The interface between a scenario and the run loop that plays it. An engine is one run loop of one thread and the scenario's items, by
// name. `CFEngine` is the real CFRunLoop; `OurEngine` is the `RunLoop` of this package; `NamesEngine` is the latter through
// the functions of EventLoopCF.
//
// The interface passes names, not objects, so that a scenario is written once. Modes are strings: "default" and "common" stand for each
// loop's own constants.

internal import EventLoopTestSupport

/// Renamed, since Foundation has a `Pipe` too.
typealias PortPipe = Pipe

/// How a run ended, in terms that both loops share.
enum Outcome: String, Sendable {
    case finished, stopped, timedOut, handledSource
}

/// Times are in milliseconds since the scenario began; `elapsedMilliseconds` is the present.
protocol Engine: Sendable {
    /// The calling thread's loop, with the items of this engine.
    func onCallingThread() -> any Engine
    /// Releases the items, and with them the closures that refer to the scenario.
    func forgetItems()

    var elapsedMilliseconds: Double { get }

    func makeSource(
        _ name: String, order: Int,
        schedule: @escaping @Sendable (_ mode: String) -> Void, cancel: @escaping @Sendable (_ mode: String) -> Void,
        perform: @escaping @Sendable () -> Void)
    func makeTimer(
        _ name: String, fireAtMilliseconds: Double, intervalMilliseconds: Double?, order: Int, handler: @escaping @Sendable () -> Void)
    /// `activities` consists of the letters E T S W A X; the handler gets one of them.
    func makeObserver(
        _ name: String, activities: String, repeats: Bool, order: Int, handler: @escaping @Sendable (_ letter: String) -> Void)

    /// A source that the kernel makes ready, on a pipe. CF itself reads eight bytes before it calls back, so a poke writes eight bytes and
    /// our source reads eight.
    func makePort(_ name: String, handler: @escaping @Sendable () -> Void)
    /// Makes the port ready.
    func poke(_ port: String)

    func add(_ name: String, to mode: String)
    func remove(_ name: String, from mode: String)
    func contains(_ name: String, in mode: String) -> Bool
    func invalidate(_ name: String)
    func isValid(_ name: String) -> Bool

    func signal(_ source: String)
    func setNextFire(_ timer: String, atMilliseconds: Double)
    func nextFireMilliseconds(_ timer: String) -> Double
    func nextTimerFireMilliseconds(in mode: String) -> Double?

    func performBlock(in modes: [String], _ block: @escaping @Sendable () -> Void)

    func run(in mode: String, limitSeconds: Double, returnAfterSource: Bool) -> Outcome
    /// Runs in the default mode without a limit.
    func runUnconditionally()
    func stop()
    func wakeUp()

    var currentMode: String? { get }
    var isWaiting: Bool { get }
    var modes: Set<String> { get }
    func addCommonMode(_ mode: String)
}

/// A scenario's items by name, for use by any thread.
// SAFETY: the dictionary is behind the mutex. Both run loops let any thread use the items (the Guide says so for Core Foundation's).
final class NamedItems<Item>: @unchecked Sendable {
    private let lock = Locked(())
    private var byName: [String: Item] = [:]

    subscript(name: String) -> Item {
        get {
            guard let item = lock.withLock({ _ in byName[name] }) else { fatalError("the scenario made no item \(name)") }
            return item
        }
        set { lock.withLock { _ in byName[name] = newValue } }
    }

    func removeAll() {
        // The items are released outside the lock, because their closures can hold the last reference to anything.
        var dying: [String: Item] = [:]
        lock.withLock { _ in swap(&dying, &byName) }
    }
}
