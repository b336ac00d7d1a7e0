// A delivery increments `taken`, then reads `waiting`. A thread that begins to wait writes `waiting`, then reads `taken`. So one finds the other.

import Synchronization

extension PortQueue {
    // MARK: Senders
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

    // MARK: Requests
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

    // MARK: Room
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
            if isDrained { admitted.requests = inbox.requests.removeAll() } else { admitted.requests.append(inbox.requests.popFirst()) }
        }
        countWaiting(inbox)
        return admitted
    }

    func countWaiting(_ inbox: borrowing Inbox) {
        waiting.store(UInt64(inbox.requests.count) << 32 | UInt64(inbox.senders.count), ordering: .sequentiallyConsistent)
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
