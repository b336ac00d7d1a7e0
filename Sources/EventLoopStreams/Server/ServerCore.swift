// What a server knows of its listeners, loops and connections.
//
// Lifecycle: `presence`, a source on each loop, retains the core until the loop ends or the server is shut down; so does each connection.
// Both ends invalidate the sources, which breaks the cycles.

internal import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// The state of a server. Thread-safe.
final class ServerCore: Sendable {
    struct Settings: Sendable {
        let mode: RunLoop.Mode
        let options: ByteStream.Options
        let connectionLimit: Int
        let label: String?
        let file: StaticString
        let line: UInt
        let serve: @Sendable (ByteStream) async -> Void
    }

    enum Phase: Sendable, Comparable {
        case serving
        /// It does not listen any more.
        case draining
        /// The tasks were cancelled and their streams closed.
        case cancelled
        /// Everything has ended after a shutdown.
        case over
    }

    /// One of the loops.
    struct Member {
        let loop: RunLoop
        /// Keeps the mode from being empty, and notices the loop's end. Nil when the loop has ended.
        var presence: RunLoop.CustomSource?
        /// Its own, and those of loops that have ended.
        var listeners: [RunLoop.SocketSource]
    }

    struct Connection {
        let stream: ByteStream
        var task: Task<Void, Never>?
        /// Identifies the task in which `serve` runs.
        var taskHash: Int?
        var hasReturned = false
        var isClosed = false
    }

    /// A time limit of a shutdown.
    struct Grace {
        let timer: RunLoop.Timer
        let member: Int
        let duration: Duration
    }

    struct State {
        var phase = Phase.serving
        var members: [Member] = []
        /// Listeners that have not closed their socket.
        var listeners = 0
        /// For connections that go to the loops in turn.
        var nextMember = 0
        /// Open descriptors of connections, also of one whose stream is being made.
        var open = 0
        var connections: [UInt64: Connection] = [:]
        var lastID: UInt64 = 0
        /// Accepted beyond the limit, by listeners that were not paused in time.
        var parked: [(descriptor: Int32, member: Int)] = []
        var acceptsMore = true
        /// Counts the changes of `acceptsMore`.
        var acceptsMoreVersion = 0
        var waiters: [CheckedContinuation<Void, Never>] = []
        var graces: [Grace] = []
    }

    let state = StreamLock(State())
    let settings: Settings

    init(_ settings: Settings) { self.settings = settings }

    var openConnections: Int { state.withLock { $0.open } }

    // MARK: The beginning

    /// Returns the address that it listens on.
    func listen(on address: RunLoop.SocketAddress, _ loops: [RunLoop], sharesPort: Bool) throws(RunLoop.SourceError)
        -> RunLoop.SocketAddress
    {
        let maker = ServerListeners(
            address: address, sharesPort: sharesPort, label: settings.label, file: settings.file, line: settings.line)
        let isSpread = if case .unix = address { true } else { false }
        let listeners = try maker.make(loops.count) { [self] descriptor, member in accepted(descriptor, isSpread ? nil : member) }
        let localAddress = listeners[0].localAddress ?? address
        let members = loops.enumerated().map { index, loop in
            Member(
                loop: loop, presence: presence(index), listeners: index < listeners.count ? [listeners[index]] : [])
        }
        state.withLock { state in (state.members, state.listeners) = (members, listeners.count) }
        for listener in listeners { listener.onInvalidation { [self] _ in listenerClosed() } }
        for member in members {
            guard let presence = member.presence, member.loop.add(presence, forMode: settings.mode) else {
                stopListening()
                finishIfDone()
                throw .loopEnded
            }
        }
        for member in members { for listener in member.listeners { member.loop.add(listener, forMode: settings.mode) } }
        return localAddress
    }

    private func presence(_ member: Int) -> RunLoop.CustomSource {
        RunLoop.CustomSource(
            label: settings.label ?? "server", file: settings.file, line: settings.line, cancel: { [self] _, _ in loopEnded(member) },
            perform: {})
    }

    // MARK: Connections

    /// A listener has accepted. `member`: the loop for which it was made; nil if the loops take turns.
    private func accepted(_ descriptor: Int32, _ member: Int?) { /* DOES CALLOUT */
        enum Step { case serve(Int, pauses: Bool), park, refuse }
        let step = state.withLock { state -> Step in
            guard state.phase == .serving, let member = state.takeMember(member) else { return .refuse }
            if state.open >= settings.connectionLimit {
                state.parked.append((descriptor, member))
                return .park
            }
            state.open += 1
            return .serve(member, pauses: state.open == settings.connectionLimit && state.setAcceptsMore(false))
        }
        switch step {
        case .park: applyAcceptsMore()
        case .refuse: close(descriptor)
        case .serve(let member, let pauses):
            if pauses { applyAcceptsMore() }
            serve(descriptor, on: member)
        }
    }

    /// `open` counts the connection already.
    private func serve(_ descriptor: Int32, on member: Int) { /* DOES CALLOUT */
        let loop = state.withLock { $0.members[member].loop }
        let stream: ByteStream
        do throws(RunLoop.SourceError) {
            stream = try ByteStream(
                adopting: descriptor, on: loop, mode: settings.mode, options: settings.options, label: settings.label, file: settings.file,
                line: settings.line)
        } catch {
            // The initializer has closed the descriptor.
            return descriptorClosed()
        }
        let id = state.withLock { state in
            state.lastID += 1
            state.connections[state.lastID] = Connection(stream: stream)
            return state.lastID
        }
        let limit = settings.options.writeTimeout ?? .seconds(30)
        let task = Task(executorPreference: loop) { [self] in
            serveBegins(id)
            await settings.serve(stream)
            stream.closeAfterWriting(writeTimeout: limit)
            serveReturned(id)
        }
        let mustCancel = state.withLock { state in
            state.connections[id]?.task = task
            return state.phase == .cancelled
        }
        stream.core.onClosed { [self] in streamClosed(id) }
        if mustCancel {
            task.cancel()
            stream.close()
        }
    }

    /// In the connection's task.
    private func serveBegins(_ id: UInt64) {
        let hash = withUnsafeCurrentTask { $0?.hashValue }
        state.withLock { $0.connections[id]?.taskHash = hash }
    }

    /// Whether the calling task is one in which `serve` runs.
    var isServingCurrentTask: Bool {
        guard let hash = withUnsafeCurrentTask(body: { $0?.hashValue }) else { return false }
        return state.withLock { state in state.connections.values.contains { $0.taskHash == hash } }
    }

    private func serveReturned(_ id: UInt64) {
        state.withLock { state in state.update(id) { ($0.hasReturned, $0.taskHash) = (true, nil) } }
        finishIfDone()
    }

    private func streamClosed(_ id: UInt64) { /* DOES CALLOUT */
        state.withLock { state in state.update(id) { $0.isClosed = true } }
        descriptorClosed()
    }

    /// There is room for another connection.
    private func descriptorClosed() { /* DOES CALLOUT */
        enum Step { case serve(Int32, Int), resume, none }
        let step = state.withLock { state -> Step in
            // The room goes to a connection that was accepted beyond the limit, if there is one.
            if !state.parked.isEmpty {
                let next = state.parked.removeFirst()
                return .serve(next.descriptor, next.member)
            }
            state.open -= 1
            return state.setAcceptsMore(true) ? .resume : .none
        }
        switch step {
        case .serve(let descriptor, let member): return serve(descriptor, on: member)
        case .resume: applyAcceptsMore()
        case .none: break
        }
        finishIfDone()
    }

    /// Pauses or resumes the listeners. Of several threads that do so, the last one has the newest version.
    func applyAcceptsMore() {
        var applied = -1
        while true {  // ends: when there was no change since the last turn
            let (version, accepts, listeners) = state.withLock {
                ($0.acceptsMoreVersion, $0.acceptsMore, $0.members.flatMap(\.listeners))
            }
            if version == applied { return }
            for listener in listeners { listener.isAccepting = accepts }
            applied = version
        }
    }
}

extension ServerCore.State {
    /// Whether that is a change, which the listeners must learn of.
    mutating func setAcceptsMore(_ value: Bool) -> Bool {
        if acceptsMore == value { return false }
        acceptsMore = value
        acceptsMoreVersion += 1
        return true
    }

    /// The preferred loop, or else the next one that has not ended.
    fileprivate mutating func takeMember(_ preferred: Int?) -> Int? {
        if let preferred, members[preferred].presence != nil { return preferred }
        for _ in members {
            let member = nextMember
            nextMember = (nextMember + 1) % members.count
            if members[member].presence != nil { return member }
        }
        return nil
    }

    /// Changes a connection, and forgets it when both its task and its stream have ended.
    fileprivate mutating func update(_ id: UInt64, _ change: (inout ServerCore.Connection) -> Void) {
        guard var connection = connections[id] else { return }
        change(&connection)
        connections[id] = connection.hasReturned && connection.isClosed ? nil : connection
    }
}
