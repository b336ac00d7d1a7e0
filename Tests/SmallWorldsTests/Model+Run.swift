// The model's run: the ten steps.

extension Model {
    func run(_ mode: Mode, seconds: Int, returnsAfterSource: Bool) -> String {
        // 1.9: a kept stop ends the next outermost run before the run checks its mode.
        if frames.isEmpty && isStopKept {
            isStopKept = false
            return "stopped"
        }
        let place = Place(loop: currentLoop, mode: mode)
        for frame in frames { frame.lostItsBatch = true }
        if isEmpty(place) { settle() }
        if isEmpty(place) { return "finished" }  // 1.2, 8.5
        let frame = Frame(place, now[currentLoop] + seconds, seconds <= 0, returnsAfterSource)
        // 1.10, 8.8: a wake-up that the outer run has not noticed remains with the outer run.
        let outerWasWoken = !frames.isEmpty && isWoken
        frames.append(frame)
        notify("E", place)  // 1
        var result = takeStop(frame) ? "stopped" : nil
        while result == nil { result = pass(frame) }
        notify("X", place)  // 10
        frames.removeLast()
        if outerWasWoken { isWoken = true }
        if frame.isSticky {
            // The sticky stop came too late for its run.
            if frames.isEmpty { isStopKept = true } else { stop(sticky: true) }
        }
        return result!
    }

    private func pass(_ frame: Frame) -> String? {
        notePass()
        let place = frame.place
        isWoken = false
        settle()
        notify("T", place)  // 2
        notify("S", place)  // 3
        performBlocks(place)
        var isHandled = performSources(frame)  // 4
        if isHandled { performBlocks(place) }
        if !isHandled && isEmpty(place) { return endOfPass(frame, isHandled) }
        var found = look(place)  // 5
        if !isHandled && !frame.polls && found.isEmpty {
            notify("W", place)  // 6
            found = sleep(frame)  // 7
            notify("A", place)  // 8
        }
        if serve(found, frame) { isHandled = true }  // 9
        performBlocks(place)
        return endOfPass(frame, isHandled)
    }

    private func endOfPass(_ frame: Frame, _ isHandled: Bool) -> String? {
        if isHandled && frame.returnsAfterSource { return "handledSource" }
        if takeStop(frame) { return "stopped" }
        if frame.polls || frame.limit <= now[frame.place.loop] { return "timedOut" }
        if isEmpty(frame.place) { return "finished" }
        return nil
    }

    private func takeStop(_ frame: Frame) -> Bool {
        defer { (frame.isStopped, frame.isSticky) = (false, false) }
        return frame.isStopped
    }

    /// 1.4.
    func isEmpty(_ place: Place) -> Bool {
        if isKept && place.loop == 0 { return false }
        if items.contains(where: { $0.isIn(place) && !$0.kind.isObserver }) { return false }
        return !blocks.contains { $0.place == place } && !performs.contains { $0.place == place }
    }

    // MARK: Observers (7)

    private func notify(_ letter: Character, _ place: Place) {
        let prefix = place.mode == .normal ? "" : "o:"
        let snapshot = items.filter { $0.isIn(place) && $0.kind.activity == letter }
            .sorted { $0.insertion[place]! < $1.insertion[place]! }
        for item in snapshot where item.isIn(place) && !item.isFiring {
            item.isFiring = true
            call("\(item.name):\(letter)")
            item.isFiring = false
            if item.kind.rawValue.hasPrefix("once") { invalidate(item.name) }  // 7.2
        }
        if isObserved && place.loop == 0 { call(prefix + String(letter)) }
    }

    // MARK: Closures (6, 10)

    private func performBlocks(_ place: Place) {
        let batch = blocks.filter { $0.place == place }
        blocks.removeAll { $0.place == place }
        for block in batch { call(block.word) }
    }

    /// Step 4: performs the closures that were queued when the step began, one at a time, so that a nested run performs the rest.
    private func performQueued(_ place: Place) -> Bool {
        let last = counter
        var isHandled = false
        while let index = performs.firstIndex(where: { $0.place == place && $0.number <= last }) {
            isHandled = true
            call(performs.remove(at: index).word)
        }
        return isHandled
    }

    // MARK: Custom sources (3)

    private func performSources(_ frame: Frame) -> Bool {
        let place = frame.place
        let performed = performQueued(place)
        if performed && frame.returnsAfterSource { return true }
        var isHandled = performed
        let batch = items.filter { $0.kind == .source && $0.isIn(place) && $0.ready > 0 }.sorted { $0.readyAt < $1.readyAt }
        for item in batch where item.isIn(place) && item.ready > 0 {
            item.ready = 0  // 3.5
            using(item) { call(item.name) }
            isHandled = true
            if frame.returnsAfterSource { break }
        }
        return isHandled
    }

    // MARK: Ready items

    struct Found {
        var ports: [(item: ModelItem, joining: Int?)] = []
        var hasMessages = false
        var isEmpty: Bool { ports.isEmpty && !hasMessages }
    }

    private func look(_ place: Place) -> Found {
        let ports = items.filter { $0.kind.isWatched && $0.isIn(place) && $0.ready > 0 && !$0.isMuted && $0.isArmed }
            .sorted { ($0.readyAt < $1.readyAt) != lastReadyFirst }
        return Found(ports: ports.map { ($0, $0.joinings[place]) }, hasMessages: items.contains { hasMessage($0, place) })
    }

    private func hasMessage(_ item: ModelItem, _ place: Place) -> Bool { item.kind == .port && item.isIn(place) && item.ready > 0 }

    private func sleep(_ frame: Frame) -> Found {
        let (place, loop) = (frame.place, frame.place.loop)
        let found = look(place)
        let isAwake =
            frame.isStopped || isWoken || isEmpty(place) || !found.isEmpty || blocks.contains { $0.place == place }
            || performs.contains { $0.place == place } || items.contains { $0.kind == .source && $0.isIn(place) && $0.ready > 0 }
        if isAwake { return found }
        let dates = items.filter { $0.isIn(place) && $0.kind.isTimer && !$0.isFiring }.compactMap(\.date)
        now[loop] = max(now[loop], min(frame.limit, dates.min() ?? .max))
        return found
    }

    // MARK: Step 9

    private func serve(_ found: Found, _ frame: Frame) -> Bool {
        let place = frame.place
        let dueBy = now[place.loop]
        var turn = lastTurn[place]
        for _ in 0..<3 {
            turn = turn.map { Turn(rawValue: ($0.rawValue + 1) % 3)! } ?? .timers
            switch turn! {
            case .timers:
                let due = items.filter { isDue($0, place, dueBy) }.sorted {
                    ($0.date!, $0.filedAt[place]!) < ($1.date!, $1.filedAt[place]!)
                }
                if due.isEmpty { continue }
                lastTurn[place] = .timers
                fireTimers(due, place, dueBy)
                return false
            case .ports:
                if found.ports.isEmpty { continue }
                lastTurn[place] = .ports
                return servePorts(found, frame)
            case .messages:
                if !found.hasMessages { continue }
                lastTurn[place] = .messages
                if serveMessages(frame) { return true }
            }
        }
        return false
    }

    private func isDue(_ item: ModelItem, _ place: Place, _ dueBy: Int) -> Bool {
        item.kind.isTimer && item.isIn(place) && !item.isFiring && item.date.map { $0 <= dueBy } ?? false
    }

    /// 5.2, 5.4, 5.5, 5.6, 5.22.
    private func fireTimers(_ batch: [ModelItem], _ place: Place, _ dueBy: Int) {
        for item in batch where isDue(item, place, dueBy) {
            let date = item.date!
            item.isFiring = true
            (item.wasDated, item.pastDate) = (false, nil)
            if item.kind == .onDemand { item.date = nil }  // 5.22
            call(item.name)
            item.isFiring = false
            if item.kind == .timer || item.kind == .delayed { invalidate(item.name) }
            if item.wasDated || !item.repeats { continue }
            let present = now[place.loop]
            item.date = present < date ? date + Self.interval : present + Self.interval - (present - date) % Self.interval
            file(item)
        }
    }

    private func servePorts(_ found: Found, _ frame: Frame) -> Bool {
        let place = frame.place
        var isHandled = false
        frame.lostItsBatch = false
        var batch = found.ports
        if frame.returnsAfterSource {
            // The least recently served item.
            batch = [batch.min { servedAt[$0.item.name] ?? 0 < servedAt[$1.item.name] ?? 0 }!]
        }
        for (item, joining) in batch {
            if frame.lostItsBatch { break }
            guard item.isIn(place), item.joinings[place] == joining, item.isArmed, !item.isMuted, item.ready > 0 else { continue }
            servedAt[item.name] = next()
            serve(item)
            isHandled = true
            if item.kind != .listener { continue }
            // 18.15. No world has as many connections as a pass accepts.
            while item.isIn(place), !item.isMuted, item.ready > 0, !frame.lostItsBatch, !frame.isStopped, !frame.returnsAfterSource {
                serve(item)
            }
        }
        return isHandled
    }

    private func serve(_ item: ModelItem) {
        item.ready -= 1
        if item.kind == .oneShot { item.isArmed = false }
        using(item) {
            // The source reports the status of a process once, and is then invalid (18).
            if item.kind == .process { invalidate(item.name) }
            call(item.name)
        }
    }

    /// 16.2, 16.3.
    private func serveMessages(_ frame: Frame) -> Bool {
        let place = frame.place
        let step = next()
        var isHandled = false
        for item in items.filter({ hasMessage($0, place) }).sorted(by: { $0.readyAt < $1.readyAt }) {
            // The port had its turn in a run that was nested in this step.
            if let last = item.messageStep[place.loop], last >= step { continue }
            item.messageStep[place.loop] = step
            let joining = item.joinings[place]
            var rest = item.ready
            using(item) {
                while rest > 0, item.isIn(place), item.joinings[place] == joining, item.ready > 0 {
                    rest -= 1
                    item.ready -= 1
                    call(item.name)
                    isHandled = true
                    if frame.returnsAfterSource || frame.isStopped { break }
                }
            }
            if frame.isStopped || (isHandled && frame.returnsAfterSource) { break }
        }
        return isHandled
    }
}
