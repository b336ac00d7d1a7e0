internal import CPlatform
import Synchronization

extension RunLoop {
    /// Begins a recording. A recording in progress is discarded. Keeps the newest `capacity` events, and counts the overwritten ones.
    ///
    /// Recorded are runs, passes, sleeps, wake-ups by other threads, and every callout. The owner records from its next step on: a callout
    /// that is in progress now is not in the recording. It is woken for that if it sleeps. An event costs no allocation, no lock and no system
    /// call, and about thirty nanoseconds; nothing is recorded in the time when the loop is not run. An event takes 80 bytes, all of them
    /// allocated here. More than 256 spans one inside another are not recorded. `capacity` is between one and 67,108,864.
    ///
    /// Thread-safe. A precondition failure in a child process, for an inherited loop.
    public func startRecording(capacity: Int = 65_536) {
        shared.preconditionOurs()
        let largest = 1 << 26
        precondition((1...largest).contains(capacity), "a recording keeps between one event and \(largest), not \(capacity)")
        let old = observationForWishes().setRing(EventRing(capacity: capacity))
        if old == nil { cplatform_count_recordings(1) }
        notifyOfObservers()
    }

    /// Ends the recording and returns it; nil if none was in progress. Thread-safe. O(events).
    ///
    /// On another thread than the owning one, the events that the owner records at this moment may be missing.
    public func stopRecording() -> Recording? {
        guard isOurs else { return nil }
        guard let observation = observation.load(), let ring = observation.setRing(nil) else { return nil }
        cplatform_count_recordings(-1)
        let recording = makeRecording(observation, ring)
        waker.mark(.observers)
        return recording
    }

    /// Whether a recording is in progress. Thread-safe.
    public var isRecording: Bool { observation.load()?.wishes.withLock { $0.ring != nil } ?? false }

    /// When the sleep began that the owner is in, in ticks; nil if it is in none, or in another pass than `spans` end with.
    private func sleepInProgress(_ observation: Observation, in spans: [OpenSpans.Span]) -> UInt64? {
        guard isWaiting, let pass = spans.last, !pass.mark.kind.isCallout else { return nil }
        // Before a sleep, this is the end of the last one: in another pass, or in a run inside this one. After a sleep, it is its end.
        let start = counters.changedAt.current
        guard start > pass.startTicks && start > pass.resumedTicks else { return nil }
        return isWaiting && observation.spans.innermost()?.serial == pass.serial ? start : nil
    }

    private func makeRecording(_ observation: Observation, _ ring: EventRing) -> Recording {
        // Open spans first: one that ends meanwhile is in both lists. One that begins meanwhile is left out, because its parent may be in neither.
        let taken = TickClock.ticks
        let open = observation.spans.snapshot()
        let sleep = sleepInProgress(observation, in: open)
        let (entries, overwritten) = ring.entries()
        let end = TickClock.Reading.now
        let clock = RecordingClock(ring.start, end)
        func mode(_ index: Int) -> Mode { index < modeTable.count ? modeTable[index].name : .default }
        func event(_ mark: SpanMark, _ start: UInt64, _ duration: UInt64, _ label: String?) -> Recording.Event {
            // Both ends are converted, so that spans stay nested after the rounding. A span that a watchdog saw begin starts with the recording.
            let (first, last) = (clock.instant(max(start, ring.start.ticks)), clock.instant(max(start &+ duration, ring.start.ticks)))
            return Recording.Event(
                kind: mark.kind, start: first, duration: first.duration(to: last), mode: mode(mark.modeIndex), depth: mark.depth,
                label: label, createdAt: CreationSite(word: mark.site)?.description, flow: mark.flow)
        }
        // The end of a pass is that of its last callout, which may be before the recording began.
        let isInside = { (entry: EventRing.Entry) in entry.start <= taken && entry.start &+ entry.duration > ring.start.ticks }
        var events = entries.filter(isInside).map { event($0.mark, $0.start, $0.duration, $0.label) }
        let unfinished = open.filter { span in !entries.contains { $0.start == span.startTicks && $0.mark.word == span.mark.word } }
        events += unfinished.map { event($0.mark, $0.startTicks, TickClock.passed($0.startTicks, end.ticks), $0.label) }
        // A sleep that has ended meanwhile is in the ring, or is left out with the pass around it.
        if let sleep, let pass = unfinished.last, pass.serial == open.last?.serial,
            !entries.contains(where: { $0.mark.kind == .sleep && $0.start &+ $0.duration >= sleep })
        {
            let mark = SpanMark(.sleep, depth: pass.mark.depth, modeIndex: pass.mark.modeIndex)
            events.append(event(mark, sleep, TickClock.passed(sleep, end.ticks), nil))
        }
        // By start; of those that began together, the one that encloses the others comes first.
        events.sort { $0.start != $1.start ? $0.start < $1.start : $0.duration > $1.duration }
        var recording = Recording(events: events, overwritten: overwritten)
        recording.loopID = id
        // Events are written when they end, so none that ended later is missing.
        if overwritten > 0 { recording.completeSince = clock.instant(entries.first.map { $0.start &+ $0.duration } ?? end.ticks) }
        recording.posts = ring.allPosts().map { Recording.Post(to: $0.target, flow: $0.flow, at: clock.instant($0.ticks)) }
        return recording
    }
}

/// Converts the ticks of a recording to instants, by a reading of both clocks at its beginning and its end.
struct RecordingClock {
    private let start: TickClock.Reading
    private let unit: Double

    init(_ start: TickClock.Reading, _ end: TickClock.Reading) {
        self.start = start
        // Two readings that are close together say little; those since the process began say more.
        let isLong = end.nanoseconds - start.nanoseconds > 1_000_000
        unit = (isLong ? end.nanosecondsPerTick(since: start) : nil) ?? TickClock.nanosecondsPerTick
    }

    func instant(_ ticks: UInt64) -> RunLoop.Instant {
        let passed = (Double(Int64(bitPattern: ticks &- start.ticks)) * unit).rounded()
        return RunLoop.Instant(nanoseconds: start.nanoseconds.addingSaturated(Int64(clamping: passed)))
    }
}

/// The key by which a callout is found that delivers what another thread posted.
enum FlowKey {
    @inline(__always) static func closure(_ sequence: UInt64) -> UInt64 { sequence << 1 | 1 }
    /// A custom source or a port. Signals coalesce, and messages are delivered together, so the key is the source's.
    @inline(__always) static func source(_ source: RunLoop.Source) -> UInt64 { UInt64(UInt(bitPattern: ObjectIdentifier(source))) << 1 }
}

extension RunLoop.Source {
    /// Records that the caller has made the source ready in all of its loops.
    @inline(never) func recordPost(at ticks: UInt64) {
        _ = state.withLockIfOwn { state in
            state.forEachMembership { RecordedPosts.record(to: $0.loop.id, FlowKey.source(self), at: ticks) }
        }
    }
}

/// Posts of code that runs on a loop which is recorded. A thread without such a loop has no track that an arrow could begin on.
enum RecordedPosts {
    /// When the caller posts, in ticks; zero if nobody records. Call it before the post: its receiver may be faster than the caller.
    @inline(__always) static var present: UInt64 { cplatform_recordings() == 0 ? 0 : TickClock.ticks }

    @inline(never) static func record(to target: UInt64, _ flow: UInt64, at ticks: UInt64) {
        guard LoopID.current != 0 else { return }
        LoopLifetime.withCurrent { loop in
            loop.owned.observation?.use { observation in observation.ringReference?.use { $0.recordPost(to: target, flow, at: ticks) } }
        }
    }
}
