// How a server ends: by a shutdown, or with its loops.

internal import EventLoop

extension ServerCore {
    /// Serves the connections that wait in the kernel's queues, and closes the listeners. No-op if called before.
    ///
    /// First every listener refuses new connections, so that what is accepted then is all there is: a queue that is closed with connections in
    /// it resets them. The listeners count as open until they are invalid, so nothing is over before.
    ///
    /// `isGraceOver`: connections that are served from now on are cancelled at once.
    func stopListening(isGraceOver: Bool = false) { /* DOES CALLOUT */
        let listeners = state.withLock { state in
            if isGraceOver { state.leavesAdoptedQueues = true }
            let count = state.members.count
            let listeners = state.members.enumerated().flatMap { member, each in
                each.listeners.enumerated().map { StoppedListener(source: $1, number: member + $0 * count) }
            }
            for index in state.members.indices { state.members[index].listeners = [] }
            if state.phase == .serving { state.phase = .draining }
            return listeners
        }
        for listener in listeners { listener.source.refuseConnections() }
        for listener in listeners { serveQueue(of: listener) }
    }

    /// Serves what waits in the queue, and closes the listener: later, if descriptors run out before, when a connection has given back its own.
    func serveQueue(of listener: StoppedListener) { /* DOES CALLOUT */
        if listener.source.isAdopted { return serveAdoptedQueue(of: listener) }
        enum Next { case end, tryAgain, wait }
        var next = Next.tryAgain
        while next == .tryAgain {  // ends: when no connection has closed meanwhile
            let closes = state.withLock { $0.closes }
            let isEmpty = listener.source.acceptQueue(limit: Self.longestQueue) { connection in accepted(connection, listener.number) }
            next = state.withLock { state in
                if isEmpty || state.phase != .draining { return .end }
                if state.closes != closes { return .tryAgain }
                if state.open == 0 { return .end }
                state.stopped.append(listener)
                return .wait
            }
        }
        if next == .end { listener.source.endListening() }
    }

    /// Serves the clients for whom there is room, and closes the listener. The others stay in the queue, for a successor that has the socket, too:
    /// in this server they would wait for the end of other connections, and be closed unserved after the grace.
    private func serveAdoptedQueue(of listener: StoppedListener) { /* DOES CALLOUT */
        for _ in 0..<Self.longestQueue {
            let hasRoom = state.withLock { state in
                state.phase == .draining && !state.leavesAdoptedQueues && state.open < settings.connectionLimit
                    && state.members.contains { $0.presence != nil }
            }
            if !hasRoom { break }
            var isEmpty = true
            _ = listener.source.acceptQueue(limit: 1) { connection in
                isEmpty = false
                accepted(connection, listener.number)
            }
            if isEmpty { break }
        }
        listener.source.endListening()
    }

    /// More than any queue has; where new connections cannot be refused, serving those that wait must end.
    private static var longestQueue: Int { 65_536 }

    /// Cancels the connections after `duration` of the time of the first loop from `member` on that has not ended; at once if there is
    /// none.
    func startGrace(_ duration: Duration, from member: Int = 0) { /* DOES CALLOUT */
        if duration <= .zero { return cancelConnections() }
        let (phase, next) = state.withLock { state in
            (state.phase, state.members.indices.dropFirst(member).first { state.members[$0].presence != nil })
        }
        if phase >= .cancelled { return }
        guard let next else { return cancelConnections() }
        let loop = state.withLock { $0.members[next].loop }
        let timer = RunLoop.Timer(
            fireAt: loop.clock.now.advanced(by: duration), label: "grace of a server", file: settings.file, line: settings.line
        ) { [self] _ in cancelConnections() }
        let isAdded = loop.add(timer, forMode: .common)
        if isAdded && settings.mode != .common { loop.add(timer, forMode: settings.mode) }
        let isWatched = state.withLock { state in
            // If the loop has ended, nobody looks at this timer any more.
            let isWatched = isAdded && state.phase < .cancelled && state.members[next].presence != nil
            if isWatched { state.graces.append(Grace(timer: timer, member: next, duration: duration)) }
            return isWatched
        }
        if isWatched { return }
        timer.invalidate()
        startGrace(duration, from: next + 1)  // ends: with the last loop
    }

    /// The grace is over.
    func cancelConnections() { /* DOES CALLOUT */
        let (connections, parked, stopped) = state.withLock { state -> ([Connection], [IncomingConnection], [StoppedListener]) in
            if state.phase >= .cancelled { return ([], [], []) }
            state.phase = .cancelled
            defer { (state.parked, state.stopped) = ([], []) }
            return (state.connections, state.parked.map(\.connection), state.stopped)
        }
        for listener in stopped { listener.source.endListening() }
        for connection in parked { connection.refuse() }
        // Also if a handler of one of them ends the thread.
        var left = connections[...]
        CallInProgress.callForEach({ left.popFirst() }) { connection in
            self.state.withLock { _ in connection.task }?.cancel()
            connection.stream.close()
        }
        finishIfDone()
    }

    /// A listener has closed its socket, because this server has ended it, or because it has failed. Nil if that was its last release.
    func listenerClosed(_ listener: (any ServerListener)?) { /* DOES CALLOUT */
        let failure = listener?.failure
        let isServing = state.withLock { state in
            state.listeners -= 1
            if let listener {
                for index in state.members.indices { state.members[index].listeners.removeAll { $0 === listener } }
            }
            return state.phase == .serving
        }
        if let failure, isServing { warnOfFailure(failure) }
        finishIfDone()
    }

    private func warnOfFailure(_ failure: RunLoop.SourceError) { /* DOES CALLOUT */
        Warnings.reportEach(
            .endedUnderServer, label: settings.label, site: CreationSite(settings.file, settings.line),
            "a listener of a StreamServer has failed: \(failure); when isAccepting is false, nobody can connect: shut the server down, and "
                + "start another one")
    }

    /// A loop has ended, or `finishIfDone` has invalidated its presence.
    func loopEnded(_ member: Int) { /* DOES CALLOUT */
        let (ended, graces, isLive) = state.withLock { state in
            let ended = state.members[member]
            let isLive = state.phase == .serving && ended.presence != nil
            (state.members[member].presence, state.members[member].listeners) = (nil, [])
            let graces = state.graces.filter { $0.member == member }
            state.graces.removeAll { $0.member == member }
            return (ended, graces, isLive)
        }
        ended.presence?.invalidate()
        for listener in ended.listeners { passOn(listener, from: member) }
        for grace in graces {
            grace.timer.invalidate()
            startGrace(grace.duration)
        }
        if !isLive { return }
        warnOfEnd(of: ended.loop)
        let isLast = state.withLock { state in
            guard state.phase == .serving, state.members.allSatisfy({ $0.presence == nil }) else { return false }
            (state.phase, state.end) = (.draining, .loopEnded)
            return true
        }
        // Nobody will shut the server down. Its streams have ended; its tasks are to end, too.
        if isLast { cancelConnections() }
    }

    private func warnOfEnd(of loop: RunLoop) { /* DOES CALLOUT */
        let rest = "shut the server down before its loops end"
        let message =
            loop !== RunLoop.main
            ? "a loop has ended under a StreamServer; \(rest)"
            : "the main loop has ended under a StreamServer; in a program with an async main, call RunLoop.adoptAsyncMain() in its first line, "
                + "so that the main thread runs the loop; otherwise \(rest)"
        Warnings.report(.endedUnderServer, label: settings.label, site: CreationSite(settings.file, settings.line), message)
    }

    /// Moves the listener of a loop that has ended to another one. Closing it would reset the connections in its queue. The caller has removed
    /// it from the state, so that no other thread invalidates it before it has joined the other loop.
    private func passOn(_ listener: any ServerListener, from member: Int) { /* DOES CALLOUT */
        while true {  // ends: with the last loop
            let (heir, phase) = state.withLock { state in
                (state.members.indices.first { state.members[$0].presence != nil }, state.phase)
            }
            guard let heir, phase <= .draining else { return listener.endListening() }
            if phase == .draining {
                // A shutdown that has begun meanwhile has not found it.
                listener.refuseConnections()
                return serveQueue(of: StoppedListener(source: listener, number: member))
            }
            listener.join(state.withLock { $0.members[heir].loop }, settings.mode)
            let isDone = state.withLock { state in
                let isDone = state.phase == .serving && state.members[heir].presence != nil
                if isDone { state.members[heir].listeners.append(listener) }
                return isDone
            }
            if isDone { return applyAcceptsMore() }
        }
    }

    /// Resumes those who wait for the end, if it has come.
    func finishIfDone() { /* DOES CALLOUT */
        let ended = state.withLock { state -> State? in
            guard state.phase == .draining || state.phase == .cancelled, state.listeners == 0, state.open == 0, state.connections.isEmpty,
                state.parked.isEmpty
            else { return nil }
            let ended = state
            (state.phase, state.waits, state.graces) = (.over, [], [])
            for index in state.members.indices { state.members[index].presence = nil }
            return ended
        }
        guard let ended else { return }
        for grace in ended.graces { grace.timer.invalidate() }
        for member in ended.members { member.presence?.invalidate() }
        for wait in ended.waits { wait.deliver(ended.end) }
    }

    /// Forgets the connections without ending them, and resumes those who wait: in a simulation, the server's process has crashed.
    func abandon() { /* DOES CALLOUT */
        let abandoned = state.withLock { state in
            let abandoned = state
            (state.phase, state.end, state.open, state.connections, state.parked, state.stopped) = (.over, .loopEnded, 0, [], [], [])
            (state.waits, state.graces) = ([], [])
            for index in state.members.indices { (state.members[index].presence, state.members[index].listeners) = (nil, []) }
            return abandoned
        }
        for grace in abandoned.graces { grace.timer.invalidate() }
        for member in abandoned.members { member.presence?.invalidate() }
        for wait in abandoned.waits { wait.deliver(.loopEnded) }
    }

    // MARK: Waiting

    var isAccepting: Bool {
        state.withLock { $0.phase == .serving && $0.listeners > 0 && $0.members.contains { $0.presence != nil } }
    }

    /// Where a task waits for the end.
    func makeWait() -> TaskWait<ByteStream.End> {
        let wait = TaskWait<ByteStream.End>()
        let end = state.withLock { state -> ByteStream.End? in
            if state.phase == .over { return state.end }
            state.waits.append(wait)
            return nil
        }
        if let end { wait.deliver(end) }
        return wait
    }

    /// The task waits no more, and the server may go on.
    func withdraw(_ wait: TaskWait<ByteStream.End>) {
        let end = state.withLock { state in
            state.waits.removeAll { $0 === wait }
            return state.end
        }
        wait.deliver(end)
    }
}
