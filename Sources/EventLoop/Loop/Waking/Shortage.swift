// Rule 9.15: a mode runs without a base if the process has no descriptors for one. poll(2) needs none, but is linear in the number of sources, and
// knows levels only: an edge-triggered source is served seldom, because its handler may leave the descriptor ready.

internal import CPlatform

struct PolledSources {
    /// Found ready, and not served yet. `position` is the source's in the mode's list.
    var ready: [(membership: SourceMembership, position: Int, readiness: Readiness)] = []
    /// Edge-triggered sources are polled again from then on.
    var nextEdges: Int64 = .min
    /// The sources that were ready could not be served here; another loop is in their handlers.
    var wereBusy = false
}

extension RunLoop {
    private static var shortestPause: Int64 { 10_000_000 }
    /// Step 5 without a base.
    @inline(never) func findReadyWithoutPoller(_ mode: ModeState) -> Ready { poll(entriesToPoll(mode), atMost: 0) }

    /// Step 7 without a base. No callouts but those of sources that fail when the base is made.
    @inline(never) func sleepWithoutPoller(_ frame: RunFrame, _ mode: ModeState, until latest: Int64) -> Ready { /* DOES CALLOUT */
        var pause = Self.shortestPause
        while true {  // ends: with an event, a wake-up, the limit, or with a base
            // The bases of other modes never read the channel. A thread that writes after this finds the loop asleep.
            waker.channel.drain()
            let entries = entriesToPoll(mode)
            waker.beginSleep()
            if isReasonToStayAwake(frame, mode) {
                waker.stayAwake()
                return poll(entries, atMost: 0)
            }
            let limit = min(min(frame.owned.limit, latest), mode.owned.timers.nextWake())
            counters.waits.increment()
            counters.endWork()
            let ready = waitWithoutPoller(entries, until: limit, atMost: pause)
            counters.endWaiting()
            let wasWoken = waker.endSleep()
            if wasWoken { didWakeUp(mode) }
            if wasWoken || !ready.isEmpty || (limit != .max && limit <= now().nanoseconds) { return ready }
            if preparePoller(mode, mayStayWithout: false), let poller = mode.owned.poller {
                return sleep(frame, mode, poller, until: latest)
            }
            pause = min(2 * pause, 50 * Self.shortestPause)
        }
    }

    /// Step 9 without a base: serves what was found ready, if it is in the mode still.
    func serveWithoutPoller(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        let found = owned.polled.ready
        owned.polled.ready = []
        // A run that returns after one source begins after the one that was served last, so that all have their turns.
        let batch = found.filter { $0.position >= mode.owned.nextPolled } + found.filter { $0.position < mode.owned.nextPolled }
        mode.owned.nextPolled = 0
        frame.owned.lostItsBatch = false
        var isHandled = false
        for (membership, position, readiness) in batch where !frame.owned.lostItsBatch && isMember(membership, of: mode) {
            guard let watch = membership.source.watch else { continue }
            if readiness.contains(.broken) && FileIdentity(of: watch.descriptor) != watch.identity {
                fail(membership.source, .badDescriptor(watch.descriptor))
                continue
            }
            if watch.trigger == .edge { owned.polled.nextEdges = Instant.now.nanoseconds.addingSaturated(Self.shortestPause) }
            if membership.isInSeveralBases { countServing(membership) }
            let core = membership.source.core
            if serve(core, membership, readiness, mode, isToServe: isMember(membership, of: mode)) { isHandled = true }
            if isHandled && frame.owned.returnsAfterSource {
                mode.owned.nextPolled = position + 1
                break
            }
        }
        owned.polled.wereBusy = !isHandled
        return isHandled
    }

    /// What was found ready is kept until the next search, because another kind may have its turn first.
    @inline(__always) func forgetPolled(_ membership: SourceMembership) {
        if !owned.polled.ready.isEmpty { owned.polled.ready.removeAll { $0.membership === membership } }
    }

    /// Has step 9 serve a source without asking whether it is ready.
    func addPolled(_ membership: SourceMembership) {
        if owned.polled.ready.contains(where: { $0.membership === membership }) { return }
        owned.polled.ready.append((membership, 0, .read))
    }

    private typealias Entry = (membership: SourceMembership?, position: Int, polled: cplatform_polled, priority: Priority)

    /// The channel, the main queue's handle, and the sources that want something, in this order.
    private func entriesToPoll(_ mode: ModeState) -> [Entry] {
        func entry(_ descriptor: Int32) -> Entry {
            (nil, 0, cplatform_polled(descriptor: descriptor, wanted: Readiness.read.rawValue, ready: 0), .default)
        }
        var entries = [entry(waker.channel.readEnd)]
        if servesMainQueue(in: mode) && owned.mainQueue.hasHandle { entries.append(entry(cplatform_main_queue_descriptor())) }
        if owned.polled.wereBusy {
            owned.polled.wereBusy = false
            return entries
        }
        let mayPollEdges = Instant.now.nanoseconds >= owned.polled.nextEdges
        let memberships = shared.withLock { $0.sourcesToWatch(inMode: mode.index) }
        for (position, membership) in memberships.enumerated() {
            guard membership.source.isValid, let watch = membership.source.watch, !watch.wanted.isEmpty else { continue }
            if watch.trigger == .edge && !mayPollEdges { continue }
            let polled = cplatform_polled(descriptor: watch.descriptor, wanted: watch.wanted.rawValue, ready: 0)
            entries.append((membership, position, polled, watch.priority))
        }
        return entries
    }

    private func waitWithoutPoller(_ entries: [Entry], until limit: Int64, atMost pause: Int64) -> Ready {
        guard let clock = time.manualClock else {
            let left = limit == .max ? pause : limit.subtractingSaturated(Instant.now.nanoseconds)
            return poll(entries, atMost: max(0, min(left, pause)))
        }
        let turn = clock.comeToWait()
        let ready = poll(entries, atMost: 0)
        if !ready.isEmpty { return ready }
        defer { clock.endWaiting(self) }
        guard case .sleep = clock.beginWaiting(self, until: limit, since: turn) else { return Ready() }
        return poll(entries, atMost: pause)
    }

    /// Polls, and keeps the sources of the most urgent priority that has any ready.
    private func poll(_ entries: [Entry], atMost nanoseconds: Int64) -> Ready {
        owned.polled.ready = []
        // One entry for each descriptor, because poll(2) refuses more entries than the process may have descriptors.
        var byDescriptor: [Int32: cplatform_polled] = [:]
        for entry in entries { byDescriptor[entry.polled.descriptor, default: entry.polled].wanted |= entry.polled.wanted }
        var polled = Array(byDescriptor.values)
        if cplatform_poll(&polled, Int32(polled.count), nanoseconds) <= 0 { return Ready() }
        for answer in polled { byDescriptor[answer.descriptor] = answer }
        func readiness(_ entry: Entry) -> Readiness {
            let ready = Readiness(rawValue: byDescriptor[entry.polled.descriptor]!.ready)  // every entry is in it
            return ready.intersection(Readiness(rawValue: entry.polled.wanted).union([.broken, .error]))
        }
        var ready = Ready()
        if entries.count > 1 && entries[1].membership == nil && !readiness(entries[1]).isEmpty { ready.insert(.mainQueue) }
        let found = entries.filter { $0.membership != nil && !readiness($0).isEmpty }
        guard let level = found.map(\.priority.level).min() else { return ready }
        for entry in found where entry.priority.level == level {
            owned.polled.ready.append((entry.membership!, entry.position, readiness(entry)))
        }
        return ready.union([.descriptors, .polled])
    }
}
