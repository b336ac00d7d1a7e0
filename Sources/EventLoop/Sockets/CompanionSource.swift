// A signal that goes where a source goes: outcomes that the kernel does not report.

/// Performs a closure in whatever modes the source is in when it is performed, as a handled source: a custom source that is in these modes too.
///
/// It is in no mode that the source is not in, so it keeps nothing alive by itself. Thread-safe. It calls `perform` on a loop's thread.
final class CompanionSource: Sendable {
    /// Nil before the first signal, and after the end.
    private let custom = ForkAwareMutex<RunLoop.CustomSource?>(nil)
    private let label: String

    init(_ label: String) { self.label = label }

    /// Has `perform` called once, the same for every signal.
    func signal(for source: RunLoop.Source, _ perform: @escaping @Sendable () -> Void) {
        let (custom, isNew) = custom.withLock { custom -> (RunLoop.CustomSource, Bool) in
            if let custom { return (custom, false) }
            let made = RunLoop.CustomSource(label: label, perform: perform)
            custom = made
            return (made, true)
        }
        if isNew {
            for (loop, modes) in source.places {
                for mode in modes { join(loop, mode, source) }
            }
        }
        custom.signal()
        // After the signal: a loop that it joins from here on is woken by that.
        for (loop, _) in source.places { loop.wakeUp() }
        // Invalidated meanwhile: nobody would end it.
        if !source.isValid { end() }
    }

    /// It performs no more. A second call does nothing.
    func end() { custom.withLockUnlessInherited { $0 }??.invalidate() }

    /// The source has gained a mode.
    func join(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source) {
        guard let custom = custom.withLock({ $0 }) else { return }
        loop.add(custom, forMode: mode)
        // Another thread may have taken the source out meanwhile, and its `leave` have come first.
        if !loop.contains(source, forMode: mode) { loop.remove(custom, forMode: mode) }
    }

    /// The source has lost a mode.
    func leave(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source) {
        guard let custom = custom.withLock({ $0 }) else { return }
        loop.remove(custom, forMode: mode)
        // As above, the other way round.
        if loop.contains(source, forMode: mode) { loop.add(custom, forMode: mode) }
    }
}
