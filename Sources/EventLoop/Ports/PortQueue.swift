// The messages of a port, and the threads that wait for room.
//
// Senders append to `inbox` under its lock, one lock section a message. Whoever serves the port takes all of it in one swap into a batch of
// its own, and counts each message in `taken` when it hands it out, so a message in the batch still takes up room. Both queues keep
// their memory.

internal import CPlatform
import Synchronization

/// A bounded queue: first in, first out, also among the threads that wait for room. Thread-safe.
struct PortQueue: ~Copyable, Sendable {
    enum EnqueueResult: Sendable {
        /// The queue was empty: somebody may have to be told.
        case first
        case behind
        case full
        case closed
    }

    // Internal, with its parts: a private type inside a non-copyable value that a class of another file holds stops Swift 6.3's own
    // verifier ("Global is external, but doesn't have external or weak linkage"). Private again when that compiles.
    struct Inbox: ~Copyable, Sendable {
        var messages = Deque<RunLoop.PortMessage>()
        /// `taken`, as a sender last saw it, never greater than it is: the word belongs to the receiver, and is looked at only when there
        /// seems to be no room.
        var takenSeen: UInt64 = 0
        var isClosed = false
        var senders: ContiguousArray<WaitingSender> = []
    }

    private let capacity: UInt64
    private let inbox = ForkAwareMutex(Inbox())
    /// How many messages there ever were. Written under the lock.
    private let appended = Atomic<UInt64>(0)
    /// How many of them were handed out.
    private let taken = Atomic<UInt64>(0)
    /// How many of `senders` there are. Written under the lock.
    private let waitingSenders = Atomic<Int>(0)

    init(capacity: Int) { self.capacity = UInt64(capacity) }

    /// How many messages wait to be handed out, a batch's included. Rather one too many than one too few: the word that runs behind is read
    /// first. The other way round the difference could be negative, and a loop could take a port for empty that is not. The second is ordered
    /// behind what the caller has stored: a reader says that it waits, and then looks, while a sender does it the other way round.
    var count: Int {
        let taken = taken.load(ordering: .acquiring)
        return Int(appended.load(ordering: .sequentiallyConsistent) &- taken)
    }

    /// How many threads wait for room.
    var senderCount: Int { waitingSenders.load(ordering: .relaxed) }

    /// The number of the latest message; they are numbered from one.
    var lastNumber: UInt64 { appended.load(ordering: .acquiring) }

    /// Whether a message up to this number waits to be handed out.
    func holds(upTo number: UInt64) -> Bool { taken.load(ordering: .relaxed) < number }

    // MARK: Senders

    @inline(__always)
    func put(_ message: RunLoop.PortMessage) -> EnqueueResult {
        // In a child of fork: nobody can use the queue any more.
        guard let inbox = inbox.lockValueUnlessInherited() else { return .closed }
        defer { self.inbox.unlock() }
        if inbox.pointee.isClosed { return .closed }
        // Who came earlier goes first.
        guard inbox.pointee.senders.isEmpty, hasRoom(&inbox.pointee) else { return .full }
        return append(message, to: &inbox.pointee)
    }

    /// The same, when there is room by `deadline` (real time): blocks the thread until then, and no longer than the queue is open.
    func put(_ message: RunLoop.PortMessage, before deadline: RunLoop.Instant) -> EnqueueResult {
        if let outcome = spin(message) { return outcome }
        let sender = WaitingSender(message)
        let admitted = inbox.withLock { inbox -> Admitted? in
            if inbox.isClosed { return nil }
            inbox.senders.append(sender)
            // In this order: the receiver counts what it takes and then looks for senders; this one does it the other way round.
            waitingSenders.store(inbox.senders.count, ordering: .sequentiallyConsistent)
            return admit(&inbox)
        }
        guard let admitted else { return .closed }
        admitted.open()
        _ = sender.latch.wait(until: deadline)
        return inbox.withLock { inbox in
            if let outcome = sender.outcome { return outcome }
            inbox.senders.removeAll { $0 === sender }
            waitingSenders.store(inbox.senders.count, ordering: .sequentiallyConsistent)
            return .full
        }
    }

    /// A receiver at work makes room sooner than a thread falls asleep.
    private func spin(_ message: RunLoop.PortMessage) -> EnqueueResult? {
        for _ in 0..<100 {
            cplatform_relax()
            let used = appended.load(ordering: .relaxed) &- taken.load(ordering: .relaxed)
            if used >= capacity || senderCount > 0 { continue }
            let outcome = put(message)
            if outcome != .full { return outcome }
        }
        return nil
    }

    @inline(__always)
    private func hasRoom(_ inbox: inout Inbox) -> Bool {
        let sent = appended.load(ordering: .relaxed)
        if sent &- inbox.takenSeen < capacity { return true }
        inbox.takenSeen = taken.load(ordering: .sequentiallyConsistent)
        return sent &- inbox.takenSeen < capacity
    }

    @inline(__always)
    private func append(_ message: RunLoop.PortMessage, to inbox: inout Inbox) -> EnqueueResult {
        let isFirst = inbox.messages.isEmpty
        inbox.messages.append(message)
        appended.store(appended.load(ordering: .relaxed) &+ 1, ordering: .releasing)
        return isFirst ? .first : .behind
    }

    // MARK: Receivers

    /// Takes all that there is into the receiver's batch. It is not handed out yet.
    func takeAll(into batch: inout Deque<RunLoop.PortMessage>) {
        let inbox = inbox.lockValue()
        batch.takeAll(from: &inbox.pointee.messages)
        self.inbox.unlock()
    }

    /// Takes one message. It is not handed out yet.
    func takeFirst() -> RunLoop.PortMessage? {
        let inbox = inbox.lockValue()
        defer { self.inbox.unlock() }
        return inbox.pointee.messages.isEmpty ? nil : inbox.pointee.messages.popFirst()
    }

    /// Counts a message as handed out, which makes room. True when a thread that waited for it found the queue empty: then loops may have
    /// to be told of its message.
    @inline(__always)
    func countDelivery() -> Bool {
        taken.add(1, ordering: .sequentiallyConsistent)
        return waitingSenders.load(ordering: .sequentiallyConsistent) != 0 && admitSenders()
    }

    @inline(never)
    private func admitSenders() -> Bool {
        let admitted = inbox.withLock { admit(&$0) }
        admitted.open()
        return admitted.isFirst
    }

    /// Gives back what was not handed out, in front of what has come since. What is left in the batch is dropped: the queue is closed.
    func putBack(_ batch: inout Deque<RunLoop.PortMessage>) {
        let inbox = inbox.lockValue()
        defer { self.inbox.unlock() }
        putBack(&batch, into: &inbox.pointee)
    }

    /// Gives back one that had counted as handed out. It takes up room again, also when senders have filled the queue meanwhile.
    func putBackDelivered(_ message: RunLoop.PortMessage) {
        var batch = Deque<RunLoop.PortMessage>()
        batch.append(message)
        let inbox = inbox.lockValue()
        defer { self.inbox.unlock() }
        let left = taken.subtract(1, ordering: .sequentiallyConsistent).newValue
        // A sender that had seen the greater number would let one message too many in.
        inbox.pointee.takenSeen = min(inbox.pointee.takenSeen, left)
        putBack(&batch, into: &inbox.pointee)
    }

    private func putBack(_ batch: inout Deque<RunLoop.PortMessage>, into inbox: inout Inbox) {
        if inbox.isClosed { return }
        batch.takeAll(from: &inbox.messages)
        swap(&batch, &inbox.messages)
    }

    // MARK: The end

    /// Drops what is queued and sends away who waits; from now on nothing is taken in. What it held is let go of before it returns.
    func close() { /* DOES CALLOUT */
        var dropped = Deque<RunLoop.PortMessage>()
        let senders = inbox.withLockUnlessInherited { inbox -> ContiguousArray<WaitingSender> in
            inbox.isClosed = true
            swap(&dropped, &inbox.messages)
            for sender in inbox.senders { sender.outcome = .closed }
            defer { inbox.senders = [] }
            waitingSenders.store(0, ordering: .sequentiallyConsistent)
            return inbox.senders
        }
        for sender in senders ?? [] { sender.latch.open() }
    }

    // MARK: Who waits for room

    /// What became of those who waited: to be done when the lock is free again.
    private struct Admitted: Sendable {
        var senders: ContiguousArray<WaitingSender> = []
        var isFirst = false

        func open() { for sender in senders { sender.latch.open() } }
    }

    /// Queues the messages of those who have waited longest, as far as there is room. Under the lock.
    private func admit(_ inbox: inout Inbox) -> Admitted {
        var admitted = Admitted()
        while let sender = inbox.senders.first, hasRoom(&inbox) {  // ends: one goes a turn
            inbox.senders.removeFirst()
            let outcome = append(sender.takeMessage(), to: &inbox)
            sender.outcome = outcome
            if outcome == .first { admitted.isFirst = true }
            admitted.senders.append(sender)
        }
        waitingSenders.store(inbox.senders.count, ordering: .sequentiallyConsistent)
        return admitted
    }
}

/// A thread that waits for room, and its message.
///
/// Lifecycle: made by the thread, held by it and by the queue until the message is in or the thread has given up.
final class WaitingSender: @unchecked Sendable {
    // SAFETY: guarded by the lock of the queue.
    private var message: RunLoop.PortMessage?
    /// Nil while it waits.
    var outcome: PortQueue.EnqueueResult?
    let latch = Latch()

    init(_ message: RunLoop.PortMessage) { self.message = message }

    func takeMessage() -> RunLoop.PortMessage {
        defer { message = nil }
        return message!  // a message is queued once
    }
}
