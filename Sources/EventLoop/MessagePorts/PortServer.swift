// What a LocalMessagePort does with its socket: read, hand out one request at a time, answer. How clients get in is in +Accepting, what they may
// make the port keep in +Bounds.
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

    static let backlog: Int32 = 1024
    private static let readsAtOnce = 16
    private static let guessesAtOnce = 16
    static let listenerToken: UInt64 = 1
    static let nameToken: UInt64 = 2

    let name: PortName
    let set: cplatform_port_set
    let maximumLength: Int
    /// How many descriptors of messages that have not come whole all clients together may make the port keep. From half of it on, processes that
    /// have some are not read further; when it is more, the process that has the most loses the connection that has stood still longest.
    let descriptorLimit: Int
    /// Real time, but for tests.
    let clock: @Sendable () -> RunLoop.Instant
    private let forkEpoch = ForkEpoch.current

    /// The descriptors of the connections, for whoever ends the port; nil from then on.
    let open = Guarded<[UInt64: Int32]?>([:])

    /// Where the port is, for whoever ends it.
    struct Place: Sendable {
        var registration: PortRegistration
        var listener: Int32
        var isWithdrawn = false
    }
    let place: Guarded<Place>

    private let hasEnded = Atomic<Bool>(false)
    private let listenerIsEmpty = Atomic<Bool>(false)

    // SAFETY: touched only by whoever serves the port.
    @exclusivity(unchecked) var registration: PortRegistration
    @exclusivity(unchecked) var listener: Int32
    /// Says when the socket's file has gone; negative where the system cannot.
    @exclusivity(unchecked) var nameWatch: Int32 = -1
    /// The file has gone, and the name could not be taken again: when to try next.
    @exclusivity(unchecked) var renewal: (at: RunLoop.Instant, pause: Duration)?
    /// Another port has the name.
    @exclusivity(unchecked) var hasLostName = false
    @exclusivity(unchecked) var connections: [UInt64: ServedConnection] = [:]
    /// Those that have a frame that has come whole, in the order in which their turn comes.
    @exclusivity(unchecked) var ready: [ServedConnection] = []
    @exclusivity(unchecked) private var nextReady = 0
    /// Those whose frame waits until replies have been read.
    @exclusivity(unchecked) var deferred: [ServedConnection] = []
    @exclusivity(unchecked) var lastToken = nameToken
    /// Counts what happens: the port's own order of things.
    @exclusivity(unchecked) var ticks: UInt64 = 0
    @exclusivity(unchecked) var quota: PortRoom
    @exclusivity(unchecked) var patience = PortPatience()
    /// Replies that clients have not read: their bytes, and those of each process.
    @exclusivity(unchecked) var unsentBytes = 0
    @exclusivity(unchecked) var unsentByProcess: [Int32: Int] = [:]
    @exclusivity(unchecked) var heldDescriptors = 0
    @exclusivity(unchecked) var waitingForDescriptors: [ServedConnection] = []
    /// The process has no descriptors left: until when nobody is accepted.
    @exclusivity(unchecked) var pausedUntil: RunLoop.Instant?
    /// The process has had no descriptors left: until when the port is wary of losing some.
    @exclusivity(unchecked) var waryUntil: RunLoop.Instant?
    @exclusivity(unchecked) private var alarm: Int64 = 0
    /// The only one that was ready last time: it is asked first.
    @exclusivity(unchecked) private var guess: ServedConnection?
    @exclusivity(unchecked) private var guessesInRow = 0
    private let events: UnsafeMutableBufferPointer<cplatform_port_event>
    /// Where all connections are read into, one at a time.
    let scratch: UnsafeMutableRawBufferPointer

    init(
        _ name: PortName, maximumLength: Int, descriptorLimit: Int? = nil, roomAtLeast: Int = 64 << 20,
        clock: @escaping @Sendable () -> RunLoop.Instant = { .now }
    ) throws(RunLoop.PortError) {
        PortForks.prepare()
        var set = cplatform_port_set()
        if cplatform_make_port_set(&set) != 0 { throw .system(operation: "making a set of descriptors", errno: errno) }
        do {
            (registration, listener) = try PortRegistration.take(name, backlog: Self.backlog)
        } catch {
            cplatform_close_port_set(&set)
            throw error
        }
        if cplatform_port_set_watch(&set, listener, Self.listenerToken, Readiness.read.rawValue, true) != 0 {
            let code = errno
            registration.withdraw()
            close(listener)
            cplatform_close_port_set(&set)
            throw .system(operation: "watching the port's socket", errno: code)
        }
        self.name = name
        self.set = set
        place = Guarded(Place(registration: registration, listener: listener))
        self.maximumLength = maximumLength
        self.clock = clock
        // Last: a name that is in use leaves nothing behind.
        events = .allocate(capacity: 64)
        scratch = FrameInlet.makeScratch()
        quota = PortRoom(longest: Frame.headerSize + maximumLength + Frame.sealSize, atLeast: roomAtLeast)
        // The rest is for the program, and for new clients. A message that has all it may have must find room.
        self.descriptorLimit = descriptorLimit ?? max(Frame.descriptorLimit, sysconf(Int32(_SC_OPEN_MAX)) / 4)
        if !watchName() {
            retryNameLater()
            settleAlarm()
        }
    }

    deinit {
        events.deallocate()
        scratch.deallocate()
    }

    /// In a child of fork everything here is the parent's too.
    var belongsToParentProcess: Bool { forkEpoch != ForkEpoch.current }

    // MARK: The end

    /// Gives the name back and tells every client. Any thread, once.
    func withdraw() {
        if belongsToParentProcess { return }
        let (registration, listener) = place.withLock { place in
            place.isWithdrawn = true
            return (place.registration, place.listener)
        }
        registration.withdraw()
        // Nobody new gets in, and those who wait to be let in are told.
        cplatform_shutdown(listener)
        while case let client = cplatform_accept_client(listener), client >= 0 { DescriptorCloser.end(client) }  // ends: it listens no more
        // Without descriptors some are left.
        listenerIsEmpty.store(cplatform_accept_failure(errno) != CPLATFORM_ACCEPT_EXHAUSTED, ordering: .releasing)
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
        // In its queue there may be messages that nobody has read.
        if listenerIsEmpty.load(ordering: .acquiring) || belongsToParentProcess {
            close(listener)
        } else {
            DescriptorCloser.close(listener, from: 0)
        }
        forgetNameWatch()
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
            giveBackRoom(connection)
            guard let (frame, passed) = next else {
                settle(connection)
                continue
            }
            guard frame.kind == .message || frame.kind == .request else {
                drop(connection)
                continue
            }
            connection.heldSince = ticks
            connection.hasSpoken = true
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
            forgetTaken()
            if unsentBytes > 0 && !connection.isClosed && mustWaitForReplies(connection) {
                deferred.append(connection)
                connection.isDeferred = true
                // Whatever else it has sent stays in the kernel. A watch for reading would keep the set readable, and the loop would spin.
                settle(connection)
                continue
            }
            connection.isQueued = false
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
            case Self.nameToken: checkName()
            default: if let connection = connections[event.token] { hear(connection) }
            }
        }
        if let pausedUntil, pausedUntil <= clock() { resumeAccepting() }
        if let renewal, renewal.at <= clock() { checkName() }
        dropStalled()
    }

    /// A client that asks again as soon as it is answered is read without asking the set whose turn it is. The others are looked for every so
    /// many times; what is ready stays ready.
    private func guessIsRight() -> Bool {
        guard let connection = guess, guessesInRow < Self.guessesAtOnce, nextReady == ready.count, pausedUntil == nil, !somebodyWaits
        else {
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

    func read(_ connection: ServedConnection) {
        for _ in 0..<Self.readsAtOnce where !connection.inlet.hasNext() {
            guard let limit = bytesToRead(connection) else { return }
            switch connection.inlet.receive(from: connection.descriptor, limit: limit, manner(connection)) {
            // A small frame has come whole by now; what is longer is read on.
            case .received: if connection.inlet.heldBytes < 1 << 12 { return }
            case .wouldBlock: return
            case .failed(.system(_, EMFILE)):
                hasRunShort()
                return drop(connection)
            case .ended, .failed: return drop(connection)
            }
        }
    }

    /// Puts the connection where it belongs: into the list, or under the watch of the set.
    func settle(_ connection: ServedConnection) {
        if connection.isClosed { return }
        if !connection.isQueued && connection.outlets.isEmpty && connection.inlet.hasNext() {
            connection.isQueued = true
            ready.append(connection)
        }
        watch(connection, !connection.outlets.isEmpty ? .write : connection.isWaiting || connection.isDeferred ? nil : .read)
        count(connection)
    }

    private func watch(_ connection: ServedConnection, _ wanted: Readiness?) {
        if connection.watched == wanted { return }
        let isNew = connection.watched == nil
        connection.watched = wanted
        var set = set
        // Not watched for nothing: the kernel would go on saying that the other end has gone.
        guard let wanted else { return cplatform_port_set_forget(&set, connection.descriptor) }
        // Without memory for the watch nobody would hear of it again.
        if cplatform_port_set_watch(&set, connection.descriptor, connection.token, wanted.rawValue, isNew) != 0 { drop(connection) }
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
    /// The memory in which the port keeps what has not come whole.
    var testsOnlyCapacity: Int { connections.values.reduce(0) { $0 + $1.inlet.capacity } }

    // MARK: The end of a connection

    func drop(_ connection: ServedConnection) {
        if connection.isClosed { return }
        connection.isClosed = true
        connections[connection.token] = nil
        connection.outlets = []
        connection.inlet.close()
        // In this order: whoever ends the port must not shut down a stranger under the same number.
        _ = open.withLockUnlessInherited { $0?[connection.token] = nil }
        if !belongsToParentProcess {
            var set = set
            cplatform_port_set_forget(&set, connection.descriptor)
        }
        // The parent's connection goes on.
        if belongsToParentProcess { close(connection.descriptor) } else { DescriptorCloser.end(connection.descriptor) }
        if belongsToParentProcess { return }
        if pausedUntil != nil { resumeAccepting() }
        uncount(connection)
    }

    private func settleAlarm() {
        var due: Int64 = 1
        if nextReady == ready.count {
            if somebodyWaits && patience.nextLook == nil { dropStalled() }
            due = [pausedUntil, renewal?.at, patience.nextLook].compactMap { $0?.nanoseconds }.min() ?? 0
        }
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
