// The serving end of a LocalMessagePort: reads its connections, calls the handler for one message at a time, and sends the replies.
//
// `PortAcceptor` accepts clients and keeps the name, `ConnectionTable` has the connections, `PortScheduler` decides whose turn it is, and
// `PortLimits` what clients may make the port hold. The decisions are carried out here.
//
// Lifecycle: the set is created with the server and closed by `end`, which is called once no thread serves the port and no kernel set
// contains it. Connections are closed before that, or by it.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
import Synchronization

/// The port's end of all its connections.
///
/// The listener and the connections are in a set of the port's own, which a loop watches as a single descriptor. So membership in several
/// modes of several loops costs nothing per connection, and unserved messages wait in the kernel, where they hold back their senders.
final class PortServer: @unchecked Sendable {
    // SAFETY: constants and types that are thread-safe themselves. Everything else is touched only by the thread that serves the port, and
    // `Source.beginServing` admits one thread at a time.

    private static let readsPerTurn = 16
    private static let acceptsPerRound = 16
    /// How many clients that connected before the name was taken again are accepted then.
    private static let acceptsOfOldListener = 64
    private static let evictionsPerRound = 4

    let set: cplatform_port_set
    let acceptor: PortAcceptor
    private let maximumLength: Int
    /// Real time, except in tests.
    let clock: @Sendable () -> RunLoop.Instant
    private let mark = ProcessMark()
    let table = ConnectionTable(lastToken: PortAcceptor.nameToken)
    private let hasEnded = Atomic<Bool>(false)

    // SAFETY: touched only by the thread that serves the port.
    private(set) var scheduler = PortScheduler()
    var limits: PortLimits
    /// The connections whose requests are being handled, the outermost handler's first.
    private var unanswered: [ServedConnection] = []
    /// When the set's alarm goes off, in nanoseconds; 0 if never.
    var alarm: Int64 = 0
    private let events: UnsafeMutableBufferPointer<cplatform_port_event>
    /// The buffer that all connections read into, one at a time.
    private let scratch: UnsafeMutableRawBufferPointer

    init(
        _ name: PortName, maximumLength: Int, descriptorLimit: Int? = nil, leastMemory: Int = 64 << 20,
        clock: @escaping @Sendable () -> RunLoop.Instant = { .now }
    ) throws(RunLoop.PortError) {
        PortGlobals.prepare()
        try DescriptorCloser.start()
        var set = cplatform_port_set()
        if cplatform_make_port_set(&set) != 0 {
            throw .system(operation: "creating a set of descriptors for the message port \(quoted(name.text))", errno: errno)
        }
        do {
            acceptor = try PortAcceptor(name, set: set, clock: clock)
        } catch {
            cplatform_close_port_set(&set)
            throw error
        }
        (self.set, self.maximumLength, self.clock) = (set, maximumLength, clock)
        // The rest is for the program and for new clients. The limit must admit a message with as many descriptors as a message may have.
        limits = PortLimits(
            descriptorLimit: descriptorLimit ?? max(Frame.descriptorLimit, sysconf(Int32(_SC_OPEN_MAX)) / 4),
            longestFrame: Frame.headerSize + maximumLength + Frame.sealSize, leastMemory: leastMemory)
        // After everything that can throw: a name in use must not leak memory.
        events = .allocate(capacity: 64)
        scratch = FrameReceiver.makeScratch()
        updateAlarm()
    }

    deinit {
        events.deallocate()
        scratch.deallocate()
    }

    var isOurs: Bool { mark.isOurs }

    /// Another port has the name, so this one cannot be found any more.
    var hasLostName: Bool { acceptor.hasLostName }

    // MARK: The end

    /// Gives the name back and disconnects every client. Thread-safe; called once.
    func withdraw() {
        guard isOurs else { return }
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        acceptor.withdraw()
        table.shutDownAll { cplatform_shutdown($0) }
    }

    /// Closes everything. For the caller who knows that nobody serves the port any more. No-op if called again.
    func end() {
        if hasEnded.exchange(true, ordering: .acquiringAndReleasing) { return }
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        for connection in table.everyConnection { drop(connection) }
        scheduler.dropTurns()
        acceptor.end()
        var set = set
        cplatform_close_port_set(&set)
    }

    /// A thread has ended in the handler. The clients whose requests it was handling lose their connections, because nobody answers them.
    func endAbandonedCalls() {
        for connection in unanswered { drop(connection) }
        unanswered = []
        updateAlarm()
    }

    // MARK: Serving

    /// The port became invalid before its handler could be called.
    struct NotHandled: Error {}

    /// Reads what has arrived and has at most one message handled. Returns false if there was none.
    ///
    /// `handle` may run the loop, end the port, or cause a nested call of this function: after it, nothing that was read before is trusted.
    ///
    /// If `handle` throws, nobody was called. The client then loses its connection: an answer would say that its message was handled.
    ///
    /// A thread that is cancelled meanwhile ends in `handle` or after the call, so that no turn and no account is left half changed.
    func serve(_ handle: (Frame, RunLoop.PassedDescriptors) throws(NotHandled) -> [UInt8]?) -> Bool { /* DOES CALLOUT */
        guard isOurs, let (connection, frame, passed) = takeMessage() else { return false }
        if frame.kind == .request { unanswered.append(connection) }
        var (answer, isHandled): ([UInt8]?, Bool) = (nil, true)
        do throws(NotHandled) { answer = try handle(frame, passed) } catch { isHandled = false }
        // The handler has forked and returned in the child. The connection, the set and the client are the parent's, which answers.
        guard isOurs else { return isHandled }
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        if frame.kind == .request { unanswered.removeLast() }
        if !isHandled { drop(connection) } else if frame.kind == .request { reply(answer, to: frame, on: connection) }
        updateAlarm()
        return isHandled
    }

    /// Reads what has arrived, and takes the message whose turn it is.
    private func takeMessage() -> (ServedConnection, Frame, RunLoop.PassedDescriptors)? {
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        takeEvents()
        defer { updateAlarm() }
        while let connection = nextTurn() {  // ends: with a message, or with the last turn
            let next: (frame: Frame, passed: RunLoop.PassedDescriptors)?
            do { next = try connection.receiver.next() } catch {
                drop(connection)
                continue
            }
            resume(limits.releaseMemoryOfServedFrame(connection))
            guard let (frame, passed) = next else {
                update(connection)
                continue
            }
            guard frame.kind == .message || frame.kind == .request else {
                drop(connection)
                continue
            }
            connection.heldSince = scheduler.round
            connection.hasSpoken = true
            // Before the callout: a nested run may serve this connection too.
            update(connection)
            return (connection, frame, passed)
        }
        return nil
    }

    /// The next connection whose message may be handled.
    private func nextTurn() -> ServedConnection? {
        while let connection = scheduler.nextTurn() {  // ends: each iteration removes a connection from the queue
            if !connection.isClosed && limits.mustDefer(connection) {
                scheduler.deferTurn(of: connection)
                // Whatever else it has sent stays in the kernel. A watch for reading would keep the set readable, and the loop would spin.
                update(connection)
                continue
            }
            connection.isQueued = false
            if !connection.isClosed && connection.outgoing.isEmpty { return connection }
        }
        return nil
    }

    private func takeEvents() {
        scheduler.beginRound()
        if readLastActive() { return }
        var set = set
        let count = cplatform_port_set_take(&set, events.baseAddress, Int32(events.count))
        if count == 1 { scheduler.setLastActive(table.connection(events[0].token)) }
        for index in 0..<Int(count) {
            let event = events[index]
            switch event.token {
            // `updateAlarm` reads the time. A one-shot alarm has to be set again.
            case UInt64(CPLATFORM_ALARM_TOKEN): if !cplatform_alarm_stays() { alarm = 0 }
            case PortAcceptor.listenerToken: acceptClients(atMost: Self.acceptsPerRound)
            case PortAcceptor.nameToken: acceptor.checkName { acceptClients(atMost: Self.acceptsOfOldListener) }
            default: if let connection = table.connection(event.token) { serveEvent(of: connection) }
            }
        }
        acceptor.retry { acceptClients(atMost: Self.acceptsOfOldListener) }
        dropStalled()
    }

    /// Reads the connection that was served last, without asking the kernel which ones are ready. Returns true if it has a complete frame.
    private func readLastActive() -> Bool {
        guard let connection = scheduler.lastActiveConnection() else { return false }
        if acceptor.isPaused || hasWaiters {
            scheduler.forgetLastActive()
            return false
        }
        if !connection.isClosed && connection.outgoing.isEmpty && !connection.isQueued { read(connection) }
        let isReady = connection.receiver.hasNext() && !connection.isClosed
        if isReady { connection.lastHeard = scheduler.round } else { scheduler.forgetLastActive() }
        update(connection)
        return isReady
    }

    private func serveEvent(of connection: ServedConnection) {
        connection.lastHeard = scheduler.round
        if !connection.outgoing.isEmpty && !connection.flush() { return count(connection) }
        if !connection.isQueued { read(connection) }
        update(connection)
    }

    func read(_ connection: ServedConnection) {
        for _ in 0..<Self.readsPerTurn where !connection.receiver.hasNext() {
            guard let limit = limits.bytesToRead(connection) else { return }
            let mode = limits.receiveMode(for: connection, clock)
            switch connection.receiver.receive(from: connection.descriptor, limit: limit, mode) {
            // A small frame is complete by now. A longer one is read on.
            case .received: if connection.receiver.heldBytes < 1 << 12 { return }
            case .wouldBlock: return
            case .failed(.system(_, EMFILE)):
                // They stay in the kernel until those that were received before are closed.
                if mode == .refusing { return limits.waitForDescriptors(connection) }
                limits.beginShortage(clock())
                return drop(connection)
            case .ended, .failed: return drop(connection)
            }
        }
    }

    private func reply(_ answer: [UInt8]?, to frame: Frame, on connection: ServedConnection) {
        if connection.isClosed || !connection.canWrite { return }
        let conversation = frame.conversation
        var outgoing =
            switch answer {
            case nil: OutgoingFrame(.emptyReply, conversation: conversation, id: frame.id, body: [])
            case let answer? where answer.count > maximumLength:
                OutgoingFrame(.refusal, conversation: conversation, id: Refusal.tooLarge, body: Refusal.body(answer.count))
            case let answer?: OutgoingFrame(.reply, conversation: conversation, id: frame.id, body: answer)
            }
        // Usually the socket takes the whole reply at once.
        if connection.outgoing.isEmpty && outgoing.send(to: connection.descriptor) == 0 { return }
        connection.outgoing.append(outgoing)
        _ = connection.flush()
        update(connection)
    }

    // MARK: Accepting

    /// The number of connections above which a new one takes the place of an old one. Half of the descriptors are left to the program.
    static func connectionLimit(openLimit: Int = sysconf(Int32(_SC_OPEN_MAX))) -> Int { min(512, max(8, openLimit / 2)) }

    private func acceptClients(atMost limit: Int) {
        if limits.isClosingHeldUp { return acceptor.pause() }
        // The program may have changed it.
        let openLimit = sysconf(Int32(_SC_OPEN_MAX))
        var evictions = 0
        for _ in 0..<limit where !acceptor.isPaused {
            switch acceptor.accept() {
            case .client(let descriptor, let peer):
                if table.size >= Self.connectionLimit(openLimit: openLimit) { _ = evict(sparesLast: false) }
                add(descriptor, peer, openLimit)
            case .nobody: return
            // The connections of one process must not keep all others out.
            case .noDescriptor where evictions < Self.evictionsPerRound && evict(sparesLast: true): evictions += 1
            case .noDescriptor:
                limits.beginShortage(clock())
                return acceptor.pause()
            case .failed: return acceptor.pause()
            }
        }
    }

    private func evict(sparesLast: Bool) -> Bool {
        guard let connection = table.leastActive(sparesLast: sparesLast) else { return false }
        drop(connection)
        return true
    }

    private func add(_ descriptor: Int32, _ peer: PortPeer, _ openLimit: Int) {
        guard let token = table.reserveToken(for: descriptor) else { return DescriptorCloser.end(descriptor) }
        var set = set
        if cplatform_port_set_watch(&set, descriptor, token, Readiness.read.rawValue, true) != 0 {
            table.release(token)
            return DescriptorCloser.end(descriptor)
        }
        let connection = ServedConnection(
            token: token, descriptor: descriptor, process: peer.process, maximumLength: maximumLength, scratch: scratch)
        connection.lastHeard = scheduler.round
        // A new descriptor has the lowest free number.
        connection.isNearDescriptorLimit = Int(descriptor) + 2 * Int(CPLATFORM_PASSED_LIMIT) > openLimit
        table.register(connection)
        // Most clients have sent something by the time they are accepted.
        read(connection)
        update(connection)
    }

    // MARK: The state of a connection

    /// Queues the connection if it has a complete frame, watches it for whatever it waits for, and counts what it holds.
    func update(_ connection: ServedConnection) {
        if connection.isClosed { return }
        if !connection.isQueued && connection.outgoing.isEmpty && connection.receiver.hasNext() { scheduler.enqueue(connection) }
        watch(connection, !connection.outgoing.isEmpty ? .write : connection.isWaiting || connection.isDeferred ? nil : .read)
        count(connection)
    }

    private func watch(_ connection: ServedConnection, _ wanted: Readiness?) {
        if connection.watched == wanted { return }
        let isNew = connection.watched == nil
        connection.watched = wanted
        var set = set
        // Removed from the set: the kernel would keep reporting that the other end has gone, whatever the mask.
        guard let wanted else { return cplatform_port_set_forget(&set, connection.descriptor) }
        // If the kernel has no memory for the watch, the connection would never be heard again.
        if cplatform_port_set_watch(&set, connection.descriptor, connection.token, wanted.rawValue, isNew) != 0 { drop(connection) }
    }

    private func count(_ connection: ServedConnection) {
        if limits.countReplies(connection) { scheduler.resumeDeferred() }
        let holdsFewer = limits.countDescriptors(connection, round: scheduler.round)
        while let process = limits.processOverDescriptorLimit, let victim = table.longestHolder(of: process) {  // ends: one is closed
            drop(victim)
        }
        // Also while there are many: the process may hold none any more.
        if holdsFewer { resumeDescriptorWaiters() }
    }

    func resumeDescriptorWaiters() { for connection in limits.takeDescriptorWaiters() { resume(connection) } }

    private func resume(_ tokens: [UInt64]) {
        for token in tokens {
            guard let connection = table.connection(token) else { continue }
            limits.restartStallTime(of: connection)
            resume(connection)
        }
    }

    private func resume(_ connection: ServedConnection) {
        connection.isWaiting = false
        update(connection)
    }

    /// Closes a connection and releases everything that it holds. No-op if it is closed.
    func drop(_ connection: ServedConnection) {
        if connection.isClosed { return }
        connection.isClosed = true
        connection.outgoing = []
        connection.receiver.close()
        table.unregister(connection)
        guard isOurs else {
            cplatform_close(connection.descriptor)
            return
        }
        var set = set
        cplatform_port_set_forget(&set, connection.descriptor)
        DescriptorCloser.end(connection.descriptor)
        if acceptor.isPaused { acceptor.resume() }
        resume(limits.release(connection))
        resumeDescriptorWaiters()
        scheduler.resumeDeferred()
    }

    // MARK: For tests

    var testsOnlyReadyLength: Int { scheduler.testsOnlyReadyLength }
    /// The memory for incomplete messages.
    var testsOnlyCapacity: Int { table.everyConnection.reduce(0) { $0 + $1.receiver.capacity } }
    func testsOnlyHasConnection(_ token: UInt64) -> Bool { table.connection(token) != nil }
}
