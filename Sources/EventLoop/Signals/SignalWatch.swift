// Lifecycle: init makes the watch of signals.c and the channel that it writes to. `end` frees the watch, so that the signal handler does
// not write to the channel any more. deinit closes the channel, after the kernel has stopped watching it.

internal import CPlatform
internal import EventLoopLibC

/// Counts the arrivals of one process signal until `end`. Thread-safe. A child shares the channel (decision 24): the source joins no loop there.
final class SignalWatch: Sendable {
    private let signal: Int32
    private let channel: WakeChannel
    /// The C functions that take the pointer are thread-safe. Nil after `end`.
    private let watch: LoopLock<OpaquePointer?>
    let identity: FileIdentity

    init(signal: Int32) throws(RunLoop.SourceError) {
        guard cplatform_is_watchable_signal(signal) else { throw .badSignal(signal) }
        guard let channel = WakeChannel() else { throw .system(operation: "making a descriptor for signal \(signal)", errno: errno) }
        guard let identity = FileIdentity(of: channel.readEnd) else { throw .badDescriptor(channel.readEnd) }
        var ends = [channel.readEnd, channel.writeEnd]
        guard let pointer = cplatform_watch_signal(signal, &ends) else {
            throw .system(operation: "sigaction of signal \(signal)", errno: errno)
        }
        self.signal = signal
        self.channel = channel
        self.identity = identity
        watch = LoopLock(pointer)
    }

    deinit { end() }
    /// Readable while there are signals to take.
    var descriptor: Int32 { channel.readEnd }

    /// Takes the count of signals since the last call; zero after `end`, and in a child.
    func take() -> Int {
        // The channel is drained before the count is taken. A signal that arrives in between is in this count, or makes the channel readable again.
        guard channel.drain() else { return 0 }
        return watch.withLock { Int(clamping: $0.map { cplatform_take_signals($0) } ?? 0) }
    }

    /// What the kernel says about the `count` signals that were taken last, oldest first; about fewer if it keeps fewer or a handler is in progress.
    func takeDetails(_ count: Int) -> [RunLoop.SignalSource.Details] {
        watch.withLock { watch in
            guard let pointer = watch else { return [] }
            var all: [RunLoop.SignalSource.Details] = []
            var details = cplatform_signal_details()
            while cplatform_take_signal_details(pointer, &details) {  // ends: they were counted
                let (pid, uid): (Int32?, UInt32?) = details.has_sender ? (details.sender_process, details.sender_user) : (nil, nil)
                all.append(.init(code: details.code, processID: pid, userID: uid, value: details.has_value ? details.value : nil))
            }
            // A handler that was late kept those behind it from the call before. Its own are the first.
            return Array(all.prefix(count))
        }
    }

    /// Unblocks the signal on this thread if all threads block it, as they do if the program was started with the signal blocked.
    func letThrough() { _ = cplatform_let_signal_through(signal) }
    /// Makes `descriptor` readable without a signal.
    func wake() { channel.wake() }
    /// Stops counting. If this was the signal's last watch, the handler from before the first one is restored. No-op the second time.
    func end() { if let pointer = watch.exchange(nil) ?? nil { cplatform_unwatch_signal(pointer) } }
}
