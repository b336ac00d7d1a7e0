internal import CPlatform
import Synchronization

/// A bounded queue; who waits for room does so in order. Thread-safe. The receiver swaps the inbox into a batch, which keeps its room until delivery.
struct PortQueue: ~Copyable, Sendable {
    enum EnqueueResult: Sendable {
        /// The queue was empty, so the caller must notify the loops.
        case first
        /// The queue had messages, so the loops know of it.
        case behind
        case full
        case closed
    }

    // Not private because of a bug in Swift 6.3: the compiler's verifier fails on a private type inside a non-copyable value that a class
    // of another file stores ("Global is external, but doesn't have external or weak linkage"). To be made private when that compiles.
    struct Inbox: ~Copyable, Sendable {
        var messages = Deque<RunLoop.PortMessage>()
        /// What a sender saw last of `taken`: never too great. The receiver writes `taken` often, so senders read it only if the queue seems full.
        var takenSeen: UInt64 = 0
        var isClosed = false
        var senders = LinkedQueue<WaitingSender>()
        var requests = LinkedQueue<RunLoop.RoomRequest>()
    }

    private let capacity: UInt64
    let inbox = LoopLock(Inbox())
    /// How many messages were ever appended. Written under the lock.
    private let appended = Atomic<UInt64>(0)
    /// How many of them were delivered.
    private let taken = Atomic<UInt64>(0)
    /// The count of `senders`, and in the upper half that of `requests`. Written under the lock.
    let waiting = Atomic<UInt64>(0)
    init(capacity: Int) { self.capacity = UInt64(capacity) }

    /// How many messages wait to be delivered, including those in a batch. May be too great, never too small: `taken`, which never exceeds
    /// `appended`, is read first, or a loop could mistake the port for empty. `appended` is read sequentially consistent, after the caller's stores:
    /// a reader stores that it waits and then reads this count, while a sender appends and then reads whether a reader waits.
    var count: Int {
        let taken = taken.load(ordering: .acquiring)
        return Int(appended.load(ordering: .sequentiallyConsistent) &- taken)
    }

    /// The number of threads and tasks that wait for room.
    var senderCount: Int { Int(waiting.load(ordering: .relaxed) & UInt64(UInt32.max)) }
    /// Whether a thread or task waits for room, or a request to be notified of it.
    var isAwaited: Bool { waiting.load(ordering: .sequentiallyConsistent) != 0 }
    /// The number of the last message. Messages are numbered from one.
    var lastNumber: UInt64 { appended.load(ordering: .acquiring) }
    /// Whether a message with a number up to this one waits to be delivered.
    func holds(upTo number: UInt64) -> Bool { taken.load(ordering: .relaxed) < number }

    /// Calls `body` under the lock; nil if the queue is closed, as it is for a child if a thread of the parent was using it at the fork.
    @discardableResult
    func ifOpen<R>(_ body: (inout Inbox) -> R) -> R? { inbox.withLockIfOwn { inbox -> R? in inbox.isClosed ? nil : body(&inbox) } ?? nil }

    // MARK: Senders
    @inline(__always) func put(_ message: RunLoop.PortMessage) -> EnqueueResult {
        guard let inbox = inbox.lockValueIfOwn() else { return .closed }
        defer { self.inbox.unlock() }
        if inbox.pointee.isClosed { return .closed }
        guard inbox.pointee.senders.isEmpty, hasRoom(&inbox.pointee) else { return .full }  // earlier senders go first
        return append(message, to: &inbox.pointee)
    }

    /// Like `put`, but blocks the thread until there is room, `deadline` (real time) passes, or the queue is closed.
    func put(_ message: RunLoop.PortMessage, before deadline: RunLoop.Instant) -> EnqueueResult {
        // A receiver that is running makes room sooner than a thread can fall asleep and wake again.
        for _ in 0..<100 {
            cplatform_relax()
            let used = appended.load(ordering: .relaxed) &- taken.load(ordering: .relaxed)
            if used >= capacity || senderCount > 0 { continue }
            let outcome = put(message)
            if outcome != .full { return outcome }
        }
        let latch = Latch()
        let sender = WaitingSender(message) { latch.open() }
        guard enqueue(sender) else { return .closed }
        _ = latch.wait(until: deadline)
        return withdraw(sender)
    }

    @inline(__always) func hasRoom(_ inbox: inout Inbox) -> Bool {
        let sent = appended.load(ordering: .relaxed)
        if sent &- inbox.takenSeen < capacity { return true }
        inbox.takenSeen = taken.load(ordering: .sequentiallyConsistent)
        return sent &- inbox.takenSeen < capacity
    }

    @inline(__always) func append(_ message: RunLoop.PortMessage, to inbox: inout Inbox) -> EnqueueResult {
        let isFirst = inbox.messages.isEmpty
        inbox.messages.append(message)
        appended.store(appended.load(ordering: .relaxed) &+ 1, ordering: .releasing)
        return isFirst ? .first : .behind
    }

    // MARK: Receivers
    /// Moves all messages into the receiver's batch. They do not count as delivered yet.
    func takeAll(into batch: inout Deque<RunLoop.PortMessage>) { inbox.withLock { batch.takeAll(from: &$0.messages) } }
    /// Removes one message. It does not count as delivered yet.
    func takeFirst() -> RunLoop.PortMessage? { inbox.withLock { $0.messages.isEmpty ? nil : $0.messages.popFirst() } }
    /// Counts a message as delivered. `fillRoom` must follow.
    @inline(__always) func makeRoom() { taken.add(1, ordering: .sequentiallyConsistent) }
    /// Gives room to those who wait. True if the message of a waiting sender was appended to an empty queue: then the caller must notify the loops.
    @inline(__always) func fillRoom() -> Bool { /* DOES CALLOUT */ isAwaited && admitWaiting() }

    @inline(never) private func admitWaiting() -> Bool { /* DOES CALLOUT */
        let admitted = inbox.withLock { admit(&$0, afterDelivery: true) }
        admitted.wakeAll()
        return admitted.senders.contains { $0.outcome == .first }  // outcomes do not change any more
    }

    /// Returns undelivered messages to the front of the queue. If it is closed, they stay in the batch, and the caller drops them.
    func putBack(_ batch: inout Deque<RunLoop.PortMessage>) {
        ifOpen { inbox in
            batch.takeAll(from: &inbox.messages)
            swap(&batch, &inbox.messages)
        }
    }

    // MARK: Those that wait
    // A delivery increments `taken`, then reads `waiting`. A thread that begins to wait writes `waiting`, then reads `taken`. So one finds the other.

    /// Lets a sender wait. Returns false if the queue is closed.
    func enqueue(_ sender: WaitingSender) -> Bool { /* DOES CALLOUT */
        let admitted = ifOpen { inbox -> Admitted in
            sender.ticket = inbox.senders.appendForTicket(sender)
            countWaiting(inbox)
            return admit(&inbox, afterDelivery: false)
        }
        admitted?.wakeAll()
        return admitted != nil
    }

    /// Ends the wait of a sender. Returns its outcome; if it has none, `.full`.
    func withdraw(_ sender: WaitingSender) -> EnqueueResult {
        inbox.withLock { inbox in
            if let outcome = sender.outcome { return outcome }
            if let ticket = sender.ticket { _ = inbox.senders.remove(ticket) }
            countWaiting(inbox)
            return .full
        }
    }

    /// Lets a request wait. If a message would be accepted now, or the queue is closed, notifies it at once.
    func enqueue(_ request: RunLoop.RoomRequest) { /* DOES CALLOUT */
        let mustWait = ifOpen { inbox -> Bool in
            let ticket = inbox.requests.appendForTicket(request)
            request.ticket = ticket
            countWaiting(inbox)
            if !inbox.senders.isEmpty || !hasRoom(&inbox) { return true }
            _ = inbox.requests.remove(ticket)
            countWaiting(inbox)
            return false
        }
        if mustWait != true { request.notify() }
    }

    /// Ends the wait of a request. No-op if it does not wait.
    func withdraw(_ request: RunLoop.RoomRequest) {
        ifOpen { inbox in
            if let ticket = request.ticket { _ = inbox.requests.remove(ticket) }
            countWaiting(inbox)
        }
    }

    /// Those that no longer wait. They are woken after the lock is released.
    struct Admitted: Sendable {
        var senders: [WaitingSender] = []
        var requests: [RunLoop.RoomRequest] = []

        func wakeAll() { /* DOES CALLOUT */
            for sender in senders { sender.wake() }
            for request in requests { request.notify() }
        }
    }

    /// Appends the messages of waiting senders, the longest-waiting first, while there is room, and notifies requests of room left. Under the lock.
    /// A delivery makes room for one message, so it notifies one request, the last delivery all: a waiting request always has a delivery ahead of it.
    func admit(_ inbox: inout Inbox, afterDelivery: Bool) -> Admitted {
        var admitted = Admitted()
        while let sender = inbox.senders.first, hasRoom(&inbox) {  // ends: each iteration removes a sender
            _ = inbox.senders.popFirst()
            sender.outcome = append(sender.message.take()!, to: &inbox)  // it is taken once
            admitted.senders.append(sender)
        }
        if afterDelivery && !inbox.requests.isEmpty && inbox.senders.isEmpty && hasRoom(&inbox) {
            let isDrained = appended.load(ordering: .relaxed) == taken.load(ordering: .sequentiallyConsistent)
            if isDrained { admitted.requests = inbox.requests.removeAll() } else { admitted.requests.append(inbox.requests.popFirst()) }
        }
        countWaiting(inbox)
        return admitted
    }

    func countWaiting(_ inbox: borrowing Inbox) {
        waiting.store(UInt64(inbox.requests.count) << 32 | UInt64(inbox.senders.count), ordering: .sequentiallyConsistent)
    }

    // MARK: The end
    /// Closes the queue: drops its messages, and fails the waiting senders. Releases the messages before it returns.
    func close() { /* DOES CALLOUT */
        var dropped = Deque<RunLoop.PortMessage>()
        let admitted = ifOpen { inbox -> Admitted in
            inbox.isClosed = true
            swap(&dropped, &inbox.messages)
            let left = Admitted(senders: inbox.senders.removeAll(), requests: inbox.requests.removeAll())
            for sender in left.senders { sender.outcome = .closed }
            countWaiting(inbox)
            return left
        }
        admitted?.wakeAll()
    }
}

/// A thread or a task that waits for room, and its message. The sender creates it, and the queue retains it while the sender waits.
final class WaitingSender: @unchecked Sendable {
    // SAFETY: `wake` is a constant; the lock of the queue guards the rest. An outcome does not change.
    /// Ends the wait of the thread or the task. Called outside the lock.
    let wake: @Sendable () -> Void
    var message: RunLoop.PortMessage?
    /// Nil while the sender waits.
    var outcome: PortQueue.EnqueueResult?
    var ticket: LinkedQueue<WaitingSender>.Ticket?
    init(_ message: RunLoop.PortMessage, wake: @escaping @Sendable () -> Void) { (self.message, self.wake) = (message, wake) }
}
