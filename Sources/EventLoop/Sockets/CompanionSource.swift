import Synchronization

/// Performs a closure as a handled source, in the modes in which its source is at that time.
///
/// It is only in modes in which the source is, so it does not keep a mode from being empty. Thread-safe. It calls `perform` on a loop's
/// thread.
final class CompanionSource: Sendable {
    /// Nil before the first signal.
    private let custom = AtomicLazyReference<RunLoop.CustomSource>()
    private let label: String

    init(_ label: String) { self.label = label }

    /// Requests one call of `perform`, which must be the same closure each time.
    func signal(for source: RunLoop.Source, _ perform: @escaping @Sendable () -> Void) {
        if custom.load() == nil {
            let made = RunLoop.CustomSource(label: label, perform: perform)
            // Another thread may have been faster.
            if custom.storeIfNil(made) !== made { made.invalidate() }
            for (loop, modes) in source.loopsAndModes {
                for mode in modes { move(loop, mode, source, isMember: true) }
            }
        }
        custom.load()?.signal()
        // After the signal. A loop that it joins later is woken by the addition.
        for (loop, _) in source.loopsAndModes { loop.wakeUp() }
        // If the source was invalidated meanwhile, no other call ends it.
        if !source.isValid { end() }
    }

    /// Invalidates it. No-op the second time.
    func end() { custom.load()?.invalidate() }

    /// The source was added to a mode, or was removed from it.
    func move(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source, isMember: Bool) {
        guard let custom = custom.load() else { return }
        if isMember { loop.addIfPossible(custom, forMode: mode) } else { loop.remove(custom, forMode: mode) }
        // Another thread may have moved the source meanwhile, and its call may have come first. Ends when no thread moves it.
        let isMemberNow = loop.contains(source, forMode: mode)
        if isMemberNow != isMember { move(loop, mode, source, isMember: isMemberNow) }
    }
}
