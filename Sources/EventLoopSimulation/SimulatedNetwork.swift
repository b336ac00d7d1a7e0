// The network between the processes of a simulated program.

internal import CSimulation
public import EventLoop
internal import EventLoopLibC
public import EventLoopStreams

/// The network between the processes of a world. It is used inside the simulation only.
public final class SimulatedNetwork: Sendable {
    private struct State {
        var latency: ClosedRange<Duration> = .microseconds(100)...(.milliseconds(1))
        var resetChance = 0.0
        var connections: [SimulatedConnection] = []
        var partitions: [Partition] = []
        /// What waits until a partition has healed.
        var held: [() -> Void] = []
    }
    private struct Partition {
        let id: UInt64
        let one: SimulatedProcess
        let other: SimulatedProcess
    }

    // SAFETY: the run's thread alone uses all three; each call checks that.
    nonisolated(unsafe) private(set) weak var run: SimulatedRun?
    nonisolated(unsafe) private var state = State()
    nonisolated(unsafe) private var nextPartition: UInt64 = 0

    init(_ run: SimulatedRun) { self.run = run }

    private func run(_ call: StaticString) -> SimulatedRun {
        guard let run, run.isCurrent else {
            preconditionFailure("\(call) was called outside its simulation; a SimulatedNetwork is for the tasks of the same run")
        }
        return run
    }

    // MARK: What it is like

    /// The delay of each packet of bytes that is sent from now on, drawn by the seed; 100 µs to 1 ms at the beginning. The order within a
    /// connection is kept. A packet is what a socket would get in one system call: what is written in one pass of the loop, up to the room that
    /// the connection has. Negative delays are a precondition failure.
    public var latency: ClosedRange<Duration> {
        get {
            _ = run("SimulatedNetwork.latency")
            return state.latency
        }
        set {
            _ = run("SimulatedNetwork.latency")
            precondition(newValue.lowerBound >= .zero, "a packet cannot arrive before it was sent; a latency is zero or more")
            state.latency = newValue
        }
    }

    /// The chance that a connection is reset at a packet that is sent from now on, between 0 and 1 (a precondition); 0 at the beginning. The
    /// sender fails at once, and what it has sent is lost if it has not arrived. The reset reaches the other end as a packet does.
    public var resetChance: Double {
        get {
            _ = run("SimulatedNetwork.resetChance")
            return state.resetChance
        }
        set {
            _ = run("SimulatedNetwork.resetChance")
            precondition(newValue >= 0 && newValue <= 1, "a resetChance is between 0 and 1, not \(newValue)")
            state.resetChance = newValue
        }
    }

    var currentLatency: ClosedRange<Duration> { state.latency }
    var currentResetChance: Double { state.resetChance }

    // MARK: Connections

    /// Serves connections to `process name:port` in tasks of the process, with a `StreamServer`: when `serve` returns, the stream sends what it
    /// has to send and closes. The listener is gone when the process crashes.
    ///
    /// Throws `RunLoop.SourceError.system` with EADDRINUSE if the process listens on the port already, and with ENETDOWN if it has crashed.
    public func listen(
        _ process: SimulatedProcess, port: UInt16, options: ByteStream.Options = .init(),
        serve: @escaping @Sendable (ByteStream) async -> Void
    ) throws(RunLoop.SourceError) {
        _ = try server(process, port: port, options: options, serve: serve)
    }

    /// The same, with its server, which can be shut down.
    package func server(
        _ process: SimulatedProcess, port: UInt16, options: ByteStream.Options = .init(), connectionLimit: Int? = nil,
        file: StaticString = #fileID, line: UInt = #line, serve: @escaping @Sendable (ByteStream) async -> Void
    ) throws(RunLoop.SourceError) -> StreamServer {
        let run = run("SimulatedNetwork.listen")
        if process.hasCrashed { throw .system(operation: "listen \(process.name):\(port)", errno: ENETDOWN) }
        if process.listeners[port] != nil {
            throw .system(operation: "listen \(process.name):\(port)", errno: EADDRINUSE)
        }
        let listener = SimulatedListener(process, port)
        let (name, incarnation) = (listener.name, process.incarnation)
        let server = try StreamServer(
            accepting: { accept in
                listener.accept = accept
                return listener
            }, on: run.loop, options: options, connectionLimit: connectionLimit, label: name, file: file, line: line,
            makeTask: { number, body in
                Self.inProcess(incarnation) { startTask("connection \(number) of \(name)", body) }
            }, serve: serve)
        process.listeners[port] = listener
        process.servers.append(server)
        // It has the task-locals of the task that listens, and gives them to those that serve.
        _ = Self.inProcess(incarnation) { startTask("listener of \(name)") { await listener.listen() } }
        return server
    }

    /// What `body` makes belongs to this start of a process.
    private static func inProcess<Value>(_ incarnation: UInt32, _ body: () -> Value) -> Value {
        guard let raw = csim_current(), csim_current_process(raw) != incarnation else { return body() }
        csim_begin_process(raw, incarnation)
        defer { csim_end_process(raw) }
        return body()
    }

    /// Connects a process to a port of another one. Takes the latency of the way there and of the way back.
    ///
    /// Throws `RunLoop.SourceError.system` with ECONNREFUSED when nobody listens there, with ETIMEDOUT when `timeout` has passed, and with ENETDOWN
    /// if `process` has crashed; `CancellationError` if the task is cancelled.
    public func connect(
        from process: SimulatedProcess, to name: String, port: UInt16, timeout: Duration = .seconds(30),
        options: ByteStream.Options = .init()
    ) async throws -> ByteStream {
        let run = run("SimulatedNetwork.connect")
        try Task.checkCancellation()
        if process.hasCrashed { throw RunLoop.SourceError.system(operation: "connect \(name):\(port)", errno: ENETDOWN) }
        let attempt = SimulatedWait<ByteStream>()
        let operation = "connect \(name):\(port)"
        run.schedule(after: timeout.wholeNanoseconds) {
            attempt.end(.failure(RunLoop.SourceError.system(operation: operation, errno: ETIMEDOUT)))
        }
        let incarnation = process.incarnation
        run.schedule(after: run.draw(state.latency)) { [self] in
            requestArrives(attempt, from: process, incarnation, to: name, port, options, operation)
        }
        return try await withTaskCancellationHandler {
            try await withUnsafeThrowingContinuation { attempt.begin($0) }
        } onCancel: {
            attempt.end(.failure(CancellationError()))
        }
    }

    private func requestArrives(
        _ attempt: SimulatedWait<ByteStream>, from process: SimulatedProcess, _ incarnation: UInt32, to name: String, _ port: UInt16,
        _ options: ByteStream.Options, _ operation: String
    ) {
        guard let run, !attempt.isOver else { return }
        let server = run.processes.first { $0.name == name }
        if let server, isPartitioned(process, server) {
            return whenHealed { [self] in
                run.schedule(after: run.draw(state.latency)) { [self] in
                    requestArrives(attempt, from: process, incarnation, to: name, port, options, operation)
                }
            }
        }
        if process.hasCrashed || process.incarnation != incarnation { return }
        guard let server, let listener = server.listeners[port], !listener.isRefusing else {
            return answer(process, server) { attempt.end(.failure(RunLoop.SourceError.system(operation: operation, errno: ECONNREFUSED))) }
        }
        run.trace?.say("\(process.name) connects to \(name):\(port)")
        let connection = SimulatedConnection(self, from: process, to: server)
        state.connections.append(connection)
        listener.enqueue(SimulatedTransport(connection, end: 1))
        answer(process, server) {
            // Its crash has reset the connection already.
            if process.hasCrashed || process.incarnation != incarnation { return }
            if attempt.isOver { return connection.refuse(0) }
            attempt.end(
                Result {
                    try ByteStream(
                        over: SimulatedTransport(connection, end: 0), on: run.loop, options: options,
                        label: "\(process.name) to \(name):\(port)")
                })
        }
    }

    /// Calls `body` when a packet from `server` has arrived at `process`.
    private func answer(_ process: SimulatedProcess, _ server: SimulatedProcess?, _ body: @escaping () -> Void) {
        guard let run else { return }
        run.schedule(after: run.draw(state.latency)) { [self] in
            if let server, isPartitioned(process, server) { whenHealed { [self] in answer(process, server, body) } } else { body() }
        }
    }

    /// The run is over, and nothing arrives any more. What was on its way holds the run, and processes hold the network.
    func end() {
        let ended = state
        state = State()
        withExtendedLifetime(ended) {}  // not released while `state` is being changed
    }

    func forget(_ connection: SimulatedConnection) { state.connections.removeAll { $0 === connection } }

    func processCrashed(_ process: SimulatedProcess) {
        for connection in state.connections { connection.processCrashed(process, process.incarnation) }
        state.connections.removeAll { $0.isOver }
    }

    // MARK: Partitions

    /// Between the two processes nothing arrives until `heal`, or until `duration` has passed. What is on its way is delayed, not lost, as TCP
    /// does it, until the streams time out. A process cannot be partitioned from itself: that does nothing.
    public func partition(_ one: SimulatedProcess, from other: SimulatedProcess, for duration: Duration? = nil) {
        let run = run("SimulatedNetwork.partition")
        if one === other { return }
        nextPartition += 1
        let id = nextPartition
        state.partitions.append(Partition(id: id, one: one, other: other))
        run.trace?.say("\(one.name) and \(other.name) are partitioned")
        guard let duration else { return }
        run.schedule(after: duration.wholeNanoseconds) { [self] in
            guard let index = state.partitions.firstIndex(where: { $0.id == id }) else { return }  // it has healed
            state.partitions.remove(at: index)
            run.trace?.say("\(one.name) and \(other.name) are \(isPartitioned(one, other) ? "still partitioned" : "connected again")")
            releaseHeld()
        }
    }

    /// Ends all partitions.
    public func heal() {
        run("SimulatedNetwork.heal").trace?.say("the network heals")
        state.partitions = []
        releaseHeld()
    }

    func isPartitioned(_ one: SimulatedProcess, _ other: SimulatedProcess) -> Bool {
        state.partitions.contains { ($0.one === one && $0.other === other) || ($0.one === other && $0.other === one) }
    }

    /// Calls `body` when a partition has ended, which may be another one.
    func whenHealed(_ body: @escaping () -> Void) { state.held.append(body) }

    private func releaseHeld() {
        let held = state.held
        state.held = []
        for body in held { body() }
    }
}

// MARK: - Chance

extension SimulatedRun {
    /// A number of nanoseconds in the range, from the network's stream of chance.
    func draw(_ range: ClosedRange<Duration>) -> UInt64 {
        let (low, high) = (range.lowerBound.wholeNanoseconds, range.upperBound.wholeNanoseconds)
        let (width, overflow) = (high - low).addingReportingOverflow(1)
        return low + (overflow ? csim_draw_network(raw) : csim_draw_network(raw) % width)
    }

    /// True with this chance, from the network's stream.
    func drawChance(_ chance: Double) -> Bool { chance > 0 && Double(csim_draw_network(raw) >> 11) / Double(1 << 53) < chance }
}
