// What a LocalMessagePort does with its socket: accept, read, hand out one request at a time, answer.
//
// Lifecycle: the listener and the set are made with the server and closed by `end()`, which is called once no thread is in it and no kernel
// set holds it; connections are closed before that or then.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// The port's end of all its connections.
///
/// The listener and the connections stand in a set of the port's own, which a loop watches as one descriptor. So being in several modes of
/// several loops costs nothing for each connection, and what is not served waits in the kernel, where it holds the senders back.
final class PortServer: @unchecked Sendable {
    // SAFETY: constants; what `open` guards; and what only the thread that serves touches, which `Source.beginServing` makes one.

    /// More than these, and a new one takes the place of an old one.
    static let connectionLimit = 512
    private static let backlog: Int32 = 1024
    private static let acceptsAtOnce = 16
    private static let readsAtOnce = 16
    private static let guessesAtOnce = 16
    private static let retryAfter = Duration.milliseconds(100)
    private static let listenerToken: UInt64 = 1

    private let registration: PortRegistration
    private let listener: Int32
    let set: cplatform_port_set
    private let maximumLength: Int
    /// How many bytes, and how many descriptors, all clients together may make the port keep. When it is more, the process that has the most
    /// there loses the connection that has stood still longest.
    private let heldLimit: Int
    private let descriptorLimit: Int
    private let forkEpoch = ForkEpoch.current

    /// The descriptors of the connections, for whoever ends the port; nil from then on.
    private let open = Guarded<[UInt64: Int32]?>([:])

    private let hasEnded = Atomic<Bool>(false)

    // SAFETY: touched only by whoever serves the port.
    @exclusivity(unchecked) private var connections: [UInt64: ServedConnection] = [:]
    /// Those that have a frame that has come whole, in the order in which their turn comes.
    @exclusivity(unchecked) private var ready: [ServedConnection] = []
    @exclusivity(unchecked) private var nextReady = 0
    @exclusivity(unchecked) private var lastToken = listenerToken
    /// Counts what happens: the port's own time.
    @exclusivity(unchecked) private var ticks: UInt64 = 0
    @exclusivity(unchecked) private var heldBytes = 0
    @exclusivity(unchecked) private var heldDescriptors = 0
    /// The process has no descriptors left: until when nobody is accepted.
    @exclusivity(unchecked) private var pausedUntil: RunLoop.Instant?
    @exclusivity(unchecked) private var alarm: Int64 = 0
    /// The only one that was ready last time: it is asked first.
    @exclusivity(unchecked) private var guess: ServedConnection?
    @exclusivity(unchecked) private var guessesInRow = 0
    private let events: UnsafeMutableBufferPointer<cplatform_port_event>

    init(_ name: PortName, maximumLength: Int, descriptorLimit: Int? = nil) throws(RunLoop.PortError) {
        ForkEpoch.install()
        var set = cplatform_port_set()
        if cplatform_make_port_set(&set) != 0 { throw .system(operation: "making a set of descriptors", errno: errno) }
        do {
            (registration, listener) = try PortRegistration.take(name, backlog: Self.backlog)
        } catch {
            cplatform_close_port_set(&set)
            throw error
        }
        self.set = set
        self.maximumLength = maximumLength
        // Last: a name that is in use leaves nothing behind.
        events = .allocate(capacity: 64)
        heldLimit = max(64 << 20, 4 * maximumLength)
        // The rest is for the program, and for new clients. A message that has all it may have must find room.
        self.descriptorLimit = descriptorLimit ?? max(Frame.descriptorLimit, sysconf(Int32(_SC_OPEN_MAX)) / 4)
        cplatform_port_set_watch(&set, listener, Self.listenerToken, Readiness.read.rawValue, true)
    }

    deinit { events.deallocate() }

    /// In a child of fork everything here is the parent's too.
    private var belongsToParentProcess: Bool { forkEpoch != ForkEpoch.current }

    // MARK: The end

    /// Gives the name back and tells every client. Any thread, once.
    func withdraw() {
        if belongsToParentProcess { return }
        registration.withdraw()
        // Nobody new gets in, and those who wait to be let in are told.
        cplatform_shutdown(listener)
        while case let client = cplatform_accept_client(listener), client >= 0 { close(client) }  // ends: it listens no more
        open.withLock { open in
            for descriptor in (open ?? [:]).values { cplatform_shutdown(descriptor) }
            open = nil
        }
    }

    /// Closes everything. For those who know that nobody serves any more; a second call does nothing.
    func end() {
        if hasEnded.exchange(true, ordering: .acquiringAndReleasing) { return }
        for connection in connections.values { drop(connection) }
        ready = []
        close(listener)
        var set = set
        cplatform_close_port_set(&set)
    }

    // MARK: Serving

    /// Takes note of what has come, and has one request handled. False when there was none.
    ///
    /// `handle` may run the loop, end the port, or be entered again: nothing that was read before it is trusted after it.
    func serve(_ handle: (Frame, RunLoop.PassedDescriptors) -> [UInt8]?) -> Bool { /* DOES CALLOUT */
        if belongsToParentProcess { return false }
        takeEvents()
        defer { settleAlarm() }
        while let connection = takeReady() {  // ends: with a request, or with the list
            let next: (frame: Frame, passed: RunLoop.PassedDescriptors)?
            do { next = try connection.inlet.next() } catch {
                drop(connection)
                continue
            }
            guard let (frame, passed) = next else {
                settle(connection)
                continue
            }
            guard frame.kind == .message || frame.kind == .request else {
                drop(connection)
                continue
            }
            connection.heldSince = ticks
            // Before the call: a nested run may serve this connection too.
            settle(connection)
            settleAlarm()
            let answer = handle(frame, passed)
            if frame.kind == .request { reply(answer, to: frame, on: connection) }
            return true
        }
        return false
    }

    private func takeReady() -> ServedConnection? {
        while nextReady < ready.count {  // ends: the index rises
            let connection = ready[nextReady]
            nextReady += 1
            connection.isQueued = false
            forgetTaken()
            if !connection.isClosed && connection.outlets.isEmpty { return connection }
        }
        return nil
    }

    /// A port that is never idle never comes to the end of the list, so what was taken goes when it is more than what is left.
    private func forgetTaken() {
        if nextReady == ready.count {
            ready.removeAll(keepingCapacity: true)
        } else if nextReady >= 64 && nextReady > ready.count - nextReady {
            ready.removeFirst(nextReady)
        } else {
            return
        }
        nextReady = 0
    }

    private func takeEvents() {
        ticks += 1
        if guessIsRight() { return }
        var set = set
        let count = cplatform_port_set_take(&set, events.baseAddress, Int32(events.count))
        if count == 1 { guess = connections[events[0].token] }
        for index in 0..<Int(count) {
            let event = events[index]
            switch event.token {
            // settleAlarm looks at the time. An alarm that does not go on ringing has to be set again.
            case UInt64(CPLATFORM_ALARM_TOKEN): if !cplatform_alarm_stays() { alarm = 0 }
            case Self.listenerToken: accept()
            default: if let connection = connections[event.token] { hear(connection) }
            }
        }
        if let pausedUntil, pausedUntil <= .now { resumeAccepting() }
    }

    /// A client that asks again as soon as it is answered is read without asking the set whose turn it is. The others are looked for every so
    /// many times; what is ready stays ready.
    private func guessIsRight() -> Bool {
        guard let connection = guess, guessesInRow < Self.guessesAtOnce, nextReady == ready.count, pausedUntil == nil else {
            guess = nil
            guessesInRow = 0
            return false
        }
        if !connection.isClosed && connection.outlets.isEmpty && !connection.isQueued { read(connection) }
        guard connection.inlet.hasNext() && !connection.isClosed else {
            guess = nil
            settle(connection)
            return false
        }
        guessesInRow += 1
        connection.lastHeard = ticks
        settle(connection)
        return true
    }

    private func hear(_ connection: ServedConnection) {
        connection.lastHeard = ticks
        if !connection.outlets.isEmpty && !connection.flush() { return count(connection) }
        if !connection.isQueued { read(connection) }
        settle(connection)
    }

    private func read(_ connection: ServedConnection) {
        for _ in 0..<Self.readsAtOnce where !connection.inlet.hasNext() {
            switch connection.inlet.receive(from: connection.descriptor) {
            // A small frame has come whole by now; what is longer is read on.
            case .received: if connection.inlet.heldBytes < 1 << 12 { return }
            case .wouldBlock: return
            case .ended, .failed: return drop(connection)
            }
        }
    }

    /// Puts the connection where it belongs: into the list, or under the watch of the set.
    private func settle(_ connection: ServedConnection) {
        if connection.isClosed { return }
        if !connection.isQueued && connection.outlets.isEmpty && connection.inlet.hasNext() {
            connection.isQueued = true
            ready.append(connection)
        }
        watch(connection, connection.outlets.isEmpty ? .read : .write)
        count(connection)
    }

    private func watch(_ connection: ServedConnection, _ wanted: Readiness) {
        if connection.watched == wanted { return }
        connection.watched = wanted
        var set = set
        cplatform_port_set_watch(&set, connection.descriptor, connection.token, wanted.rawValue, false)
    }

    private func reply(_ answer: [UInt8]?, to frame: Frame, on connection: ServedConnection) {
        if connection.isClosed || !connection.canWrite { return }
        let conversation = frame.conversation
        var outlet =
            switch answer {
            case nil: FrameOutlet(.emptyReply, conversation: conversation, id: frame.id, body: [])
            case let answer? where answer.count > maximumLength:
                FrameOutlet(.refusal, conversation: conversation, id: Refusal.tooLarge, body: Refusal.body(answer.count))
            case let answer?: FrameOutlet(.reply, conversation: conversation, id: frame.id, body: answer)
            }
        // Straight away, as a rule; only what there is no room for is put into a list.
        if connection.outlets.isEmpty && outlet.send(to: connection.descriptor) == 0 { return }
        connection.outlets.append(outlet)
        _ = connection.flush()
        settle(connection)
    }

    var testsOnlyReadyLength: Int { ready.count }

    // MARK: Accepting

    private func accept() {
        for _ in 0..<Self.acceptsAtOnce {
            let descriptor = cplatform_accept_client(listener)
            if descriptor < 0 {
                if errno != EAGAIN { pauseAccepting() }
                return
            }
            guard let peer = PortPeer(of: descriptor), peer.isOurUser else {
                close(descriptor)
                continue
            }
            if connections.count >= Self.connectionLimit { makeRoom() }
            add(descriptor, peer)
        }
    }

    private func add(_ descriptor: Int32, _ peer: PortPeer) {
        lastToken += 1
        let token = lastToken
        let isOpen = open.withLock { open in
            open?[token] = descriptor
            return open != nil
        }
        var set = set
        guard isOpen, cplatform_port_set_watch(&set, descriptor, token, Readiness.read.rawValue, true) == 0 else {
            open.withLock { $0?[token] = nil }
            close(descriptor)
            return
        }
        let connection = ServedConnection(
            token: token, descriptor: descriptor, process: peer.process, watched: .read, maximumLength: maximumLength)
        connection.lastHeard = ticks
        connections[token] = connection
        // Most clients have sent something by the time they are let in.
        read(connection)
        settle(connection)
    }

    /// The process with the most connections loses the one that has been silent longest: a client that opens thousands drives out its own.
    private func makeRoom() {
        var counts: [Int32: Int] = [:]
        for connection in connections.values { counts[connection.process, default: 0] += 1 }
        let most = counts.values.max()
        let victim = connections.values.filter { counts[$0.process] == most }.min {
            ($0.lastHeard, $0.token) < ($1.lastHeard, $1.token)
        }
        if let victim { drop(victim) }
    }

    /// There are no descriptors, or there is no memory. The client waits in the kernel's queue; asking again at once would be a spin.
    private func pauseAccepting() {
        var set = set
        cplatform_port_set_forget(&set, listener)
        pausedUntil = RunLoop.Instant.now.advanced(by: Self.retryAfter)
    }

    private func resumeAccepting() {
        pausedUntil = nil
        var set = set
        cplatform_port_set_watch(&set, listener, Self.listenerToken, Readiness.read.rawValue, true)
    }

    // MARK: Bounds

    private func count(_ connection: ServedConnection) {
        let held = connection.heldBytes
        if held == 0 && connection.countedBytes == 0 { return }
        if connection.countedBytes == 0 { connection.heldSince = ticks }
        let descriptors = connection.inlet.heldDescriptors
        heldBytes += held - connection.countedBytes
        heldDescriptors += descriptors - connection.countedDescriptors
        (connection.countedBytes, connection.countedDescriptors) = (held, descriptors)
        // Both end: each turn closes one that holds something.
        while heldBytes > heldLimit, dropStalest(by: { $0.countedBytes }) {}
        while heldDescriptors > descriptorLimit, dropStalest(by: { $0.countedDescriptors }) {}
    }

    /// Of the process that has the most here, so that one process cannot have another one's connections closed by filling its own.
    private func dropStalest(by amount: (ServedConnection) -> Int) -> Bool {
        var amounts: [Int32: Int] = [:]
        for connection in connections.values { amounts[connection.process, default: 0] += amount(connection) }
        let most = amounts.max { $0.value < $1.value }?.key
        let stalest = connections.values.filter { $0.process == most && amount($0) > 0 }.min {
            ($0.heldSince, $0.token) < ($1.heldSince, $1.token)
        }
        guard let stalest else { return false }
        drop(stalest)
        return true
    }

    private func drop(_ connection: ServedConnection) {
        if connection.isClosed { return }
        connection.isClosed = true
        heldBytes -= connection.countedBytes
        heldDescriptors -= connection.countedDescriptors
        connections[connection.token] = nil
        connection.outlets = []
        connection.inlet.closeDescriptors()
        // In this order: whoever ends the port must not shut down a stranger under the same number.
        open.withLock { $0?[connection.token] = nil }
        if !belongsToParentProcess {
            var set = set
            cplatform_port_set_forget(&set, connection.descriptor)
        }
        close(connection.descriptor)
        if pausedUntil != nil && !belongsToParentProcess { resumeAccepting() }
    }

    private func settleAlarm() {
        let due: Int64 = nextReady < ready.count ? 1 : pausedUntil?.nanoseconds ?? 0
        if due == alarm { return }
        alarm = due
        var set = set
        cplatform_port_set_alarm(&set, due)
    }
}

/// Why there is an answer and it is not sent.
enum Refusal {
    /// The body is the number of bytes.
    static let tooLarge: Int32 = 1

    static func body(_ number: Int) -> [UInt8] { withUnsafeBytes(of: UInt64(number).littleEndian) { Array($0) } }

    /// Nil when no port refuses so.
    static func error(_ frame: Frame) -> RunLoop.PortError? {
        if frame.id != tooLarge { return nil }
        let number = frame.body.withUnsafeBytes { UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }
        return .messageTooLarge(Int(clamping: number))
    }
}
