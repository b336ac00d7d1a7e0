// Watches for the end of a side's peer, with a source of its own: for those who want to know it before it is read.
//
// Lifecycle: made when somebody first asks, and retained by its side until `end`, which is called before the descriptor is closed. The source and
// the timer, which the loop retains, refer to it weakly.

internal import CStreams
import EventLoop

/// Thread-safe. The kernel may refuse the source, because the process has no descriptor left for it. Then it is tried again: when somebody calls
/// `begin`, and after a pause.
final class PeerWatch: Sendable {
    private static var shortestPause: Duration { .milliseconds(10) }
    private static var longestPause: Duration { .seconds(1) }

    private struct State: Sendable {
        var source: RunLoop.DescriptorSource?
        /// Its date is the end of the pause. Made with the first pause.
        var timer: RunLoop.Timer?
        var nextPause = PeerWatch.shortestPause
        var hasEnded = false
    }

    private let descriptor: Int32
    private let loop: RunLoop
    private let mode: RunLoop.Mode
    private let body: @Sendable () -> Void
    private let state = LoopLock(State())

    init(_ descriptor: Int32, on loop: RunLoop, _ mode: RunLoop.Mode, _ body: @escaping @Sendable () -> Void) {
        (self.descriptor, self.loop, self.mode, self.body) = (descriptor, loop, mode, body)
    }

    /// Watches, unless it does already.
    func begin() { /* DOES CALLOUT */
        if state.withLock({ $0.hasEnded || $0.source?.isValid == true }) { return }
        let source: RunLoop.DescriptorSource
        do { source = try makeSource() } catch { return pause(after: error) }
        let (isKept, other) = state.withLock { state -> (Bool, RunLoop.DescriptorSource?) in
            if state.hasEnded || state.source?.isValid == true { return (false, source) }
            defer { state.source = source }
            return (true, state.source)
        }
        guard isKept else { return source.invalidate() }
        // The one that was refused, released outside the lock.
        withExtendedLifetime(other) {}
        // Before it is added, so that this is called on the loop's thread.
        source.onInvalidation { [weak self] source in self?.sourceDidEnd(source) }
        // The stream may end meanwhile, which is no mistake.
        loop.addIfPossible(source, forMode: mode)
    }

    private func makeSource() throws(RunLoop.SourceError) -> RunLoop.DescriptorSource {
        try RunLoop.DescriptorSource(descriptor: descriptor, events: .closed, label: "end of a peer") { [body] source, _ in
            // An error of the socket is reported, too.
            if cstreams_peer_has_finished(source.descriptor) {
                source.events = []
                body()
            }
        }
    }

    /// On the loop's thread, also if the kernel has refused the source.
    private func sourceDidEnd(_ source: RunLoop.DescriptorSource) { /* DOES CALLOUT */
        guard let failure = source.failure, state.withLock({ $0.source === source }) else { return }
        pause(after: failure)
    }

    /// Not for other failures: a file has no peer, and a descriptor that is closed has none any more.
    private func pause(after failure: RunLoop.SourceError) { /* DOES CALLOUT */
        guard failure.isShortage else { return }
        let begun = state.withLock { state -> (timer: RunLoop.Timer, isNew: Bool, pause: Duration)? in
            if state.hasEnded { return nil }
            defer { state.nextPause = min(state.nextPause * 2, Self.longestPause) }
            if let timer = state.timer { return (timer, false, state.nextPause) }
            let timer = RunLoop.Timer.onDemand(label: "pause of the watch for the end of a peer") { [weak self] _ in self?.begin() }
            state.timer = timer
            return (timer, true, state.nextPause)
        }
        guard let (timer, isNew, pause) = begun else { return }
        timer.nextFire = loop.clock.now.advanced(by: pause)
        // If the stream has ended meanwhile, the timer is invalid, and the loop refuses it.
        if isNew { loop.add(timer, forMode: mode) }
    }

    /// Stops watching. Calls `body` when the kernel does not watch the descriptor any more. Two threads may call it.
    func end(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        let (source, timer) = state.withLock { state in
            state.hasEnded = true
            return (state.source, state.timer)
        }
        timer?.invalidate()
        guard let source else { return body() }
        source.onInvalidation { _ in body() }
        source.invalidate()
    }
}
