// A descriptor that becomes readable when a process signal has come.
//
// Lifecycle: the C side's watch and the channel are made together; `end` frees the watch, and with it the handler's way to the channel; the
// channel is closed by deinit, when the kernel has let go of it.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Counts one process signal from its making to `end`. Thread-safe.
final class SignalWatch: Sendable {
    private let channel: WakeChannel
    private let watch: ForkAwareMutex<Watch>
    let identity: FileIdentity

    private struct Watch: @unchecked Sendable {
        // SAFETY: made and freed by C functions that any thread may call, under the lock of `watch`.
        var pointer: OpaquePointer?
    }

    init(signal: Int32) throws(RunLoop.SourceError) {
        guard cplatform_is_watchable_signal(signal) else { throw .badSignal(signal) }
        guard let channel = WakeChannel() else { throw .system(operation: "making a descriptor for signal \(signal)", errno: errno) }
        guard let identity = FileIdentity(of: channel.readEnd) else { throw .badDescriptor(channel.readEnd) }
        var ends = [channel.readEnd, channel.writeEnd]
        guard let pointer = cplatform_watch_signal(signal, &ends) else { throw .system(operation: "sigaction", errno: errno) }
        self.channel = channel
        self.identity = identity
        watch = ForkAwareMutex(Watch(pointer: pointer))
    }

    deinit { end() }

    /// Readable while signals wait to be taken.
    var descriptor: Int32 { channel.readEnd }

    /// How many signals have come since the last call; zero after `end`.
    func take() -> Int {
        // Read before the count is taken: a signal that comes in between writes again, or is in this count.
        channel.drain()
        return watch.withLock { watch in Int(clamping: watch.pointer.map { cplatform_take_signals($0) } ?? 0) }
    }

    /// Makes `descriptor` readable though no signal has come.
    func wake() { channel.wake() }

    /// No more signals. The handler that was there before the first watch is back when this was the last one. A second call does nothing.
    func end() {
        _ = watch.withLockUnlessInherited { watch in
            if let pointer = watch.pointer { cplatform_unwatch_signal(pointer) }
            watch.pointer = nil
        }
    }
}
