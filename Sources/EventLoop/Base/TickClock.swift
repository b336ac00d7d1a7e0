// The processor's own clock, converted to time.

internal import CPlatform

/// Converts readings of the processor's clock, which cost a few nanoseconds, to time. Thread-safe.
///
/// Nobody says how long the processor's unit is. It follows from two readings of both clocks; the longer they are apart, the better.
package enum TickClock {
    /// Both clocks at one moment.
    struct Reading: Sendable {
        let ticks: UInt64
        let nanoseconds: Int64

        /// Reads the processor's clock on both sides of the system's, and takes the middle.
        static var now: Reading {
            let before = cplatform_ticks()
            let nanoseconds = RunLoop.Instant.now.nanoseconds
            return Reading(ticks: before &+ (cplatform_ticks() &- before) / 2, nanoseconds: nanoseconds)
        }

        /// How many nanoseconds a tick has, if this reading is later than the other.
        func nanosecondsPerTick(since earlier: Reading) -> Double? {
            guard ticks > earlier.ticks, nanoseconds > earlier.nanoseconds else { return nil }
            return Double(nanoseconds - earlier.nanoseconds) / Double(ticks - earlier.ticks)
        }
    }

    /// The first reading of the process, made with its first loop.
    static let start = Reading.now

    @inline(__always)
    package static var ticks: UInt64 { cplatform_ticks() }

    /// The unit as it is known now: after a millisecond it is known to a ten thousandth.
    static var nanosecondsPerTick: Double { Reading.now.nanosecondsPerTick(since: start) ?? 1 }

    /// How long so many ticks are.
    package static func duration(ofTicks ticks: UInt64) -> Duration { .nanoseconds(Int64(clamping: Double(ticks) * nanosecondsPerTick)) }

    /// The ticks from one reading to a later one. Not negative, also on a machine whose processors' clocks disagree.
    @inline(__always)
    package static func passed(_ before: UInt64, _ now: UInt64) -> UInt64 { now > before ? now - before : 0 }
}
