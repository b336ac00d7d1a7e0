// The bits that say what the owner has to check: as others set them, and as the owner keeps them until it has checked.

/// What the owner has to check. Any thread sets a bit, after the fact that the bit stands for; the owner takes it before it checks.
struct Attention: OptionSet {
    let rawValue: UInt32
    static let changes = Attention(rawValue: 1 << 0)
    static let signals = Attention(rawValue: 1 << 1)
    static let blocks = Attention(rawValue: 1 << 2)
    static let performs = Attention(rawValue: 1 << 3)
    /// `wakeUp()`, a stop, a mode that may be empty now, manual time that moved: nothing to look up, but the loop must not sleep on.
    static let wake = Attention(rawValue: 1 << 4)
    static let finishing = Attention(rawValue: 1 << 5)
    static let jobs = Attention(rawValue: 1 << 6)
    /// A run of another mode has begun or ended: the queues may hold work for the present one.
    static let recheckQueues = Attention(rawValue: 1 << 7)
    /// A port has messages that it had not before.
    static let messages = Attention(rawValue: 1 << 8)
    /// Somebody wants to observe the callouts of the loop, or not any more.
    static let observers = Attention(rawValue: 1 << 9)
    /// The owner's own: its callouts are observed. It stays while they are, so that each step takes the path on which it looks.
    static let observed = Attention(rawValue: 1 << 10)
    /// The bits that stand for entries of queues.
    static let queues: Attention = [.changes, .signals, .blocks, .performs, .finishing, .jobs, .messages]

    // Each step looks for its own bits only: a signal that step 4 serves need not send the steps before and after it off the short way.
    /// What has the queues looked into, or the owner observed: a step cannot know whether it concerns it.
    private static let unspecific: Attention = [.recheckQueues, .observers]
    static let forPass: Attention = [.wake, .changes, .finishing, .observed, .unspecific]
    static let forBlocks: Attention = [.jobs, .blocks, .unspecific]
    static let forSources: Attention = [.performs, .signals, .unspecific]
    static let forEnds: Attention = [.changes, .finishing, .unspecific]
}

/// The bits that the owner has taken from the waker and not handled yet. Owning thread only.
struct PendingWork {
    private(set) var bits = Attention()
    private(set) var deferredEvents = DeferredEvents()

    @inline(__always)
    func contains(_ bit: Attention) -> Bool { bits.contains(bit) }

    /// Adds bits. Step 9 looks for messages in `deferredEvents`, a byte that it reads anyway.
    @inline(__always)
    mutating func insert(_ new: Attention) {
        bits.formUnion(new)
        if new.contains(.messages) { deferredEvents.insert(.messages) }
    }

    @inline(__always)
    mutating func remove(_ bit: Attention) { bits.subtract(bit) }

    /// Keeps of the queues' bits only those for which the queues were found to have something.
    mutating func replaceQueues(with found: Attention) {
        bits.subtract(.queues)
        insert(found)
    }

    /// Step 9 begins to serve messages.
    mutating func takeMessages() {
        bits.remove(.messages)
        deferredEvents.remove(.messages)
    }

    /// The main queue's handle was read, and the queue is being drained by an outer run.
    mutating func deferMainQueueDrain() { deferredEvents.insert(.mainQueueDrain) }
    mutating func takeMainQueueDrain() { deferredEvents.remove(.mainQueueDrain) }
}

/// Events that step 9 serves although the wait does not report them.
struct DeferredEvents: OptionSet {
    let rawValue: UInt8
    /// See `PendingWork.deferMainQueueDrain`.
    static let mainQueueDrain = DeferredEvents(rawValue: 1 << 0)
    /// `Attention.messages` is pending.
    static let messages = DeferredEvents(rawValue: 1 << 1)
}
