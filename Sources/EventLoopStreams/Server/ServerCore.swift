// What a server knows of its listeners, loops and connections.
//
// Lifecycle: `presence`, a source on each loop, retains the core until the loop ends or the server is shut down; so does each connection.
// Both ends invalidate the sources, which breaks the cycles.

internal import EventLoop

/// The state of a server. Thread-safe.
final class ServerCore: Sendable {
    struct Settings: Sendable {
        let mode: RunLoop.Mode
        let options: ByteStream.Options
        let connectionLimit: Int
        let label: String?
        let file: StaticString
        let line: UInt
        /// Makes the task of a connection, by its number; nil: a task that prefers the connection's loop.
        let makeTask: StreamServer.MakeTask?
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
        var listeners: [any ServerListener]
    }

    /// A connection that is served, or whose task has not returned. It retains the server.
    final class Connection: @unchecked Sendable {
        // SAFETY: constants; the rest is guarded by the server's lock.
        let server: ServerCore
        let stream: ByteStream
        var task: Task<Void, Never>?
        /// Identifies the task in which `serve` runs.
        var taskHash: Int?
        var hasReturned = false
        var isClosed = false
        /// Its place in `connections`.
        var index = 0

        init(_ stream: ByteStream, of server: ServerCore) { (self.stream, self.server) = (stream, server) }

        /// What its task does.
        func serve() async {
            server.serveBegins(self)
            await server.settings.serve(stream)
            stream.closeAfterWriting(writeTimeout: server.settings.options.writeTimeout ?? .seconds(30))
            server.serveReturned(self)
        }
    }

    /// One that refuses new connections.
    struct StoppedListener {
        let source: any ServerListener
        let number: Int
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
        /// Connections go to the loops in turn, because not every loop has a listener.
        var takesTurns = false
        var nextMember = 0
        /// Open descriptors of connections, also of one whose stream is being made.
        var open = 0
        var connections: [Connection] = []
        var lastID: UInt64 = 0
        /// Accepted beyond the limit, by listeners that were not paused in time.
        var parked: [(connection: IncomingConnection, member: Int)] = []
        /// Connections that have given back their descriptors.
        var closes: UInt64 = 0
        /// Their queues are not empty, and no descriptors were left.
        var stopped: [StoppedListener] = []
        /// The grace is over from the beginning, so the queues of adopted listeners are left to others.
        var leavesAdoptedQueues = false
        var acceptsMore = true
        /// Counts the changes of `acceptsMore`.
        var acceptsMoreVersion = 0
        /// `.loopEnded` if the loops have ended before a shutdown.
        var end = ByteStream.End.closed
        /// Of tasks that wait for the end.
        var waits: [TaskWait<ByteStream.End>] = []
        var graces: [Grace] = []
    }

    let state = LoopLock(State())
    let settings: Settings
    let mark = ProcessMark()

    init(_ settings: Settings) { self.settings = settings }

    var openConnections: Int { state.withLock { $0.open } }

    // MARK: The beginning

    /// Returns the address that it listens on. `make` makes the listeners, all or none, for as many loops; each calls its argument.
    func listen(
        _ loops: [RunLoop], _ make: (@escaping ServerListeners.Accept) throws(RunLoop.SourceError) -> [any ServerListener]
    ) throws(RunLoop.SourceError) -> RunLoop.SocketAddress? {
        let listeners = try make { [self] connection, listener in accepted(connection, listener) }
        let members = loops.enumerated().map { index, loop in
            Member(
                loop: loop, presence: presence(index),
                listeners: listeners.indices.filter { $0 % loops.count == index }.map { listeners[$0] })
        }
        state.withLock { state in
            (state.members, state.listeners) = (members, listeners.count)
            state.takesTurns = listeners.count < loops.count
        }
        for listener in listeners { listener.onClosed { [self, weak listener] in listenerClosed(listener) } }
        for member in members {
            guard let presence = member.presence, member.loop.add(presence, forMode: settings.mode) else {
                // Nobody serves what waits in the queues, which may be those of a socket that others have, too.
                state.withLock { state in
                    state.phase = .cancelled
                    for index in state.members.indices { state.members[index].listeners = [] }
                }
                for listener in listeners { listener.endListening() }
                finishIfDone()
                throw .loopEnded
            }
        }
        for member in members { for listener in member.listeners { listener.join(member.loop, settings.mode) } }
        return listeners[0].localAddress
    }

    private func presence(_ member: Int) -> RunLoop.CustomSource {
        RunLoop.CustomSource(
            label: settings.label ?? "server", file: settings.file, line: settings.line, cancel: { [self] _, _ in loopEnded(member) },
            perform: {})
    }

    // MARK: Connections

    /// A listener has accepted, by its number.
    func accepted(_ connection: IncomingConnection, _ listener: Int) { /* DOES CALLOUT */
        enum Step { case serve(RunLoop, pauses: Bool), park, refuse }
        let step = state.withLock { state -> Step in
            let preferred = state.takesTurns || state.members.isEmpty ? nil : listener % state.members.count
            guard state.phase <= .draining, let member = state.takeMember(preferred) else { return .refuse }
            if state.open >= settings.connectionLimit {
                state.parked.append((connection, member))
                return .park
            }
            state.open += 1
            return .serve(
                state.members[member].loop, pauses: state.open == settings.connectionLimit && state.setAcceptsMore(false))
        }
        switch step {
        case .park: applyAcceptsMore()
        case .refuse: connection.refuse()
        case .serve(let loop, let pauses):
            if pauses { applyAcceptsMore() }
            serve(connection, on: loop)
        }
    }

    /// `open` counts the connection already. If no stream can be made of it, its room goes to the next one that waits. Not by a call inside this one:
    /// the clients of all that wait may have reset them.
    private func serve(_ incoming: IncomingConnection, on loop: RunLoop) { /* DOES CALLOUT */
        var next: (IncomingConnection, RunLoop)? = (incoming, loop)
        while let (incoming, loop) = next {  // ends: each iteration takes one that waits, or serves one
            do throws(RunLoop.SourceError) {
                return begin(try makeStream(incoming, on: loop), on: loop)
            } catch {
                // The initializer has closed the connection.
                next = giveBackRoom(of: nil)
            }
        }
    }

    private func begin(_ stream: ByteStream, on loop: RunLoop) { /* DOES CALLOUT */
        let connection = Connection(stream, of: self)
        // Before its task begins, which may shut the server down.
        let id = state.withLock { $0.insert(connection) }
        // Detached: a task may have called this, which awaits `shutdown`, or has closed another connection. Its task-locals are not this one's.
        let task =
            settings.makeTask?(id) { await connection.serve() } ?? Task.detached(executorPreference: loop) { await connection.serve() }
        let mustCancel = state.withLock { state in
            connection.task = task
            return state.phase == .cancelled
        }
        stream.core.onClosed { connection.server.connectionClosed(connection) }
        if mustCancel {
            task.cancel()
            stream.close()
        }
    }

    private func makeStream(_ connection: IncomingConnection, on loop: RunLoop) throws(RunLoop.SourceError) -> ByteStream {
        switch connection {
        case .descriptor(let descriptor):
            try ByteStream(
                adopting: descriptor, on: loop, mode: settings.mode, options: settings.options, label: settings.label, file: settings.file,
                line: settings.line)
        case .transport(let transport):
            try ByteStream(
                over: transport, on: loop, mode: settings.mode, options: settings.options, label: settings.label, file: settings.file,
                line: settings.line)
        }
    }

    /// In the connection's task.
    private func serveBegins(_ connection: Connection) {
        let hash = withUnsafeCurrentTask { $0?.hashValue }
        state.withLock { _ in connection.taskHash = hash }
    }

    /// Whether the calling task is one in which `serve` runs.
    var isServingCurrentTask: Bool {
        guard let hash = withUnsafeCurrentTask(body: { $0?.hashValue }) else { return false }
        return state.withLock { state in state.connections.contains { $0.taskHash == hash } }
    }

    private func serveReturned(_ connection: Connection) { /* DOES CALLOUT */
        let mayBeDone = state.withLock { state in
            (connection.hasReturned, connection.taskHash) = (true, nil)
            if connection.isClosed { state.remove(connection) }
            return state.phase != .serving
        }
        if mayBeDone { finishIfDone() }
    }

    /// The stream of a connection has closed its descriptor.
    private func connectionClosed(_ connection: Connection) { /* DOES CALLOUT */
        if let (next, loop) = giveBackRoom(of: connection) { serve(next, on: loop) }
    }

    /// A descriptor is closed: of a connection, or of one for which no stream could be made. Returns who is served in its room.
    private func giveBackRoom(of connection: Connection?) -> (IncomingConnection, RunLoop)? { /* DOES CALLOUT */
        enum Step { case serve(IncomingConnection, RunLoop), resume, finish, none }
        let (step, stopped) = state.withLock { state -> (Step, [StoppedListener]) in
            defer { state.stopped = [] }
            state.closes += 1
            if let connection {
                connection.isClosed = true
                if connection.hasReturned { state.remove(connection) }
            }
            // The room goes to a connection that was accepted beyond the limit, if there is one.
            if !state.parked.isEmpty {
                let next = state.parked.removeFirst()
                // Its loop may have ended while it waited.
                let member = state.takeMember(next.member) ?? next.member
                return (.serve(next.connection, state.members[member].loop), state.stopped)
            }
            state.open -= 1
            return (state.setAcceptsMore(true) ? .resume : state.phase == .serving ? .none : .finish, state.stopped)
        }
        // The descriptor goes to a connection in their queues.
        for listener in stopped { serveQueue(of: listener) }
        switch step {
        case .serve(let connection, let loop): return (connection, loop)
        case .resume:
            applyAcceptsMore()
            finishIfDone()
        case .finish: finishIfDone()
        case .none: break
        }
        return nil
    }

    /// Pauses or resumes the listeners. Of several threads that do so, the last one has the newest version.
    func applyAcceptsMore() {
        var applied = -1
        while true {  // ends: when there was no change since the last iteration
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

    /// Returns the connection's number.
    fileprivate mutating func insert(_ connection: ServerCore.Connection) -> UInt64 {
        connection.index = connections.count
        connections.append(connection)
        lastID += 1
        return lastID
    }

    /// Its task and its stream have ended. The last connection takes its place. No-op if the server has forgotten its connections.
    fileprivate mutating func remove(_ connection: ServerCore.Connection) {
        guard connection.index < connections.count, connections[connection.index] === connection else { return }
        let last = connections.removeLast()
        if last === connection { return }
        last.index = connection.index
        connections[last.index] = last
    }
}
