// How a loop's thread notifies the watchdogs that it has begun to work.

internal import CPlatform

/// The bell of the thread that serves all watchdogs. It sleeps while all loops that it watches do.
package enum WatchdogAlarm {
    /// Wakes the watchdogs' thread. No lock and no allocation; one system call. Async-signal-safe.
    package static func ring() { cplatform_ring_alarm() }
}
