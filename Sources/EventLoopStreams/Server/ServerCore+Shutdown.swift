// How a server ends: by a shutdown, or with its loops.

internal import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension ServerCore {
    /// Connections that have a task go on. No-op if called before.
    func stopListening() { /* DOES CALLOUT */
        let (listeners, parked) = state.withLock { state in
            let listeners = state.members.flatMap(\.listeners)
            let parked = state.parked
            state.parked = []
            for index in state.members.indices { state.members[index].listeners = [] }
            if state.phase == .serving { state.phase = .draining }
            return (listeners, parked)
        }
        for listener in listeners { listener.invalidate() }
        for connection in parked { close(connection.descriptor) }
    }

    /// Resumes the caller when everything has ended, at the latest some time after `grace`.
    func waitForEnd(_ waiter: CheckedContinuation<Void, Never>, _ grace: Duration) { /* DOES CALLOUT */
        let isOver = state.withLock { state in
            if state.phase != .over { state.waiters.append(waiter) }
            return state.phase == .over
        }
        if isOver { return waiter.resume() }
        startGrace(grace)
        finishIfDone()
    }

    /// Cancels the connections after `duration` of the time of the first loop from `member` on that has not ended; at once if there is
    /// none.
    private func startGrace(_ duration: Duration, from member: Int = 0) { /* DOES CALLOUT */
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
        let connections = state.withLock { state -> [Connection] in
            if state.phase >= .cancelled { return [] }
            state.phase = .cancelled
            return Array(state.connections.values)
        }
        for connection in connections {
            connection.task?.cancel()
            connection.stream.close()
        }
        finishIfDone()
    }

    func listenerClosed() {
        state.withLock { $0.listeners -= 1 }
        finishIfDone()
    }

    /// A loop has ended, or `finishIfDone` has invalidated its presence.
    func loopEnded(_ member: Int) { /* DOES CALLOUT */
        let (ended, graces) = state.withLock { state in
            let ended = state.members[member]
            (state.members[member].presence, state.members[member].listeners) = (nil, [])
            let graces = state.graces.filter { $0.member == member }
            state.graces.removeAll { $0.member == member }
            return (ended, graces)
        }
        ended.presence?.invalidate()
        for listener in ended.listeners { passOn(listener) }
        for grace in graces {
            grace.timer.invalidate()
            startGrace(grace.duration)
        }
    }

    /// Moves the listener of a loop that has ended to another one. Closing it would reset the connections in its queue. The caller has removed
    /// it from the state, so that no other thread invalidates it before it has joined the other loop.
    private func passOn(_ listener: RunLoop.SocketSource) { /* DOES CALLOUT */
        while true {  // ends: with the last loop
            let heir = state.withLock { state in
                state.phase == .serving ? state.members.indices.first { state.members[$0].presence != nil } : nil
            }
            guard let heir else { return listener.invalidate() }
            state.withLock { $0.members[heir].loop }.add(listener, forMode: settings.mode)
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
            guard state.phase == .draining || state.phase == .cancelled, state.listeners == 0, state.open == 0, state.connections.isEmpty
            else { return nil }
            let ended = state
            state.phase = .over
            (state.waiters, state.graces) = ([], [])
            for index in state.members.indices { state.members[index].presence = nil }
            return ended
        }
        guard let ended else { return }
        for grace in ended.graces { grace.timer.invalidate() }
        for member in ended.members { member.presence?.invalidate() }
        for waiter in ended.waiters { waiter.resume() }
    }
}
