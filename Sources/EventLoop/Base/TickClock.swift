internal import CPlatform
import Synchronization

/// Converts readings of the processor's clock, which cost a few nanoseconds, to time. Thread-safe. Nobody says how long the processor's unit is. It
/// follows from two readings of both clocks; the longer they are apart, the better. While a machine is suspended, the system's clock stands still.
/// The processor's goes on, or begins again at zero, or stands still, too. So readings before and after a suspension say nothing about the unit. A
/// stretch of ticks across a suspension is with it, without it, or zero.
package enum TickClock {
    /// Both clocks at one moment.
    struct Reading: Sendable {
        let ticks: UInt64
        let nanoseconds: Int64
        /// How long the machine has been suspended, in nanoseconds.
        let suspended: Int64

        /// Reads the processor's clock on both sides of the system's, and takes the middle.
        static var now: Reading {
            let before = cplatform_ticks()
            let nanoseconds = RunLoop.Instant.now.nanoseconds
            let ticks = before &+ (cplatform_ticks() &- before) / 2
            return Reading(ticks: ticks, nanoseconds: nanoseconds, suspended: cplatform_suspended_nanoseconds())
        }

        /// How many nanoseconds a tick has, if this reading is later than the other and the machine was not suspended in between.
        func nanosecondsPerTick(since earlier: Reading) -> Double? {
            guard ticks > earlier.ticks, nanoseconds > earlier.nanoseconds else { return nil }
            // A thread that loses the processor in a reading seems to have been suspended for some milliseconds. Nothing is lost by that.
            guard abs(suspended.subtractingSaturated(earlier.suspended)) < 10_000_000 else { return nil }
            return Double(nanoseconds - earlier.nanoseconds) / Double(ticks - earlier.ticks)
        }
    }

    /// The first reading of the process, made with its first loop.
    static let start = Reading.now
    /// The unit at the last reading that could be compared with the first, as the bits of a Double; zero if there was none.
    private static let lastUnit = Atomic<UInt64>(0)
    /// Initializes both: see `LoopGlobals`.
    static func prepare() { _ = (start.ticks, lastUnit.load(ordering: .relaxed)) }
    @inline(__always) package static var ticks: UInt64 { cplatform_ticks() }

    /// The unit as it is known now: after a millisecond it is known to a ten thousandth.
    static var nanosecondsPerTick: Double {
        let last = lastUnit.load(ordering: .relaxed)
        guard let unit = Reading.now.nanosecondsPerTick(since: start) ?? (last == 0 ? measuredUnit() : nil) else {
            return last == 0 ? 1 : Double(bitPattern: last)
        }
        lastUnit.store(unit.bitPattern, ordering: .relaxed)
        return unit
    }

    /// By two readings that are a millisecond apart: for a machine that was suspended before anybody asked.
    private static func measuredUnit() -> Double? {
        let begin = Reading.now
        var end = begin
        var readings = 0
        while end.nanoseconds - begin.nanoseconds < 1_000_000 {  // ends: the system's clock goes on, or it stands still
            // In a simulation it does while code runs.
            if readings == 1_000 && end.nanoseconds == begin.nanoseconds { return nil }
            readings += 1
            end = .now
        }
        return end.nanosecondsPerTick(since: begin)
    }

    /// How long so many ticks are.
    package static func duration(ofTicks ticks: UInt64) -> Duration { .nanoseconds(Int64(clamping: Double(ticks) * nanosecondsPerTick)) }
    /// The ticks from one reading to a later one. Not negative, also on a machine whose processors' clocks disagree.
    @inline(__always) package static func passed(_ before: UInt64, _ now: UInt64) -> UInt64 { now > before ? now - before : 0 }
}
