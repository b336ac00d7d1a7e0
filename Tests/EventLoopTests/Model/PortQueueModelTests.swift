// Rules proved here, one operation at a time, against an array:
// - Messages come out in the order in which they went in; messages that were put back come first.
// - The queue accepts as many messages as its capacity: a message in a batch counts, a delivered message does not.
// - Threads that wait for room get it in the order of their arrival, and later senders do not overtake them.
// - A closed queue accepts nothing, drops its messages, and ends the waits of its senders.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private typealias Message = RunLoop.PortMessage

/// The queue with its receiver's batch, and the expected contents of both.
private struct PortQueuePair: ~Copyable {
    private let queue: PortQueue
    private var batch = Deque<Message>()
    private let capacity: Int

    private var queued: [UInt32] = []
    private var batched: [UInt32] = []
    private var sent: UInt64 = 0
    private var handedOut: UInt64 = 0
    private var isClosed = false
    private var lastID: UInt32 = 0

    init(capacity: Int) {
        queue = PortQueue(capacity: capacity)
        self.capacity = capacity
    }

    /// Sends without waiting, or with a date that has passed.
    mutating func put(withDate: Bool) throws {
        lastID += 1
        let message = Message(id: lastID)
        let outcome = withDate ? queue.put(message, before: .distantPast) : queue.put(message)
        let expected: PortQueue.EnqueueResult =
            isClosed ? .closed : sent - handedOut >= capacity ? .full : queued.isEmpty ? .first : .behind
        try agree(outcome, expected, "put \(lastID)")
        if expected == .first || expected == .behind {
            queued.append(lastID)
            sent += 1
        }
    }

    mutating func takeAll() {
        queue.takeAll(into: &batch)
        batched += queued
        queued = []
    }

    /// Takes one message past the batch, as a task's iterator does, and delivers it.
    mutating func takeFirst() throws {
        let message = queue.takeFirst()
        try agree(message?.id, queued.first, "takeFirst")
        if message == nil { return }
        queued.removeFirst()
        try handOut()
    }

    mutating func handOutFromBatch() throws {
        if batched.isEmpty { return }
        let message = batch.popFirst()
        try agree(message.id, batched.removeFirst(), "the batch's first")
        try handOut()
    }

    private mutating func handOut() throws {
        queue.makeRoom()
        try agree(queue.fillRoom(), false, "a thread that waited found the queue empty")
        handedOut += 1
    }

    mutating func putBack() {
        queue.putBack(&batch)
        if isClosed {
            _ = batch.removeAll()
        } else {
            queued = batched + queued
        }
        batched = []
    }

    mutating func close() {
        queue.close()
        isClosed = true
        queued = []
    }

    func compare() throws {
        try agree(queue.count, Int(sent - handedOut), "count")
        try agree(queue.lastNumber, sent, "lastNumber")
        try agree(queue.senderCount, 0, "senderCount")
        for number in [sent, handedOut, handedOut + 1] {
            try agree(queue.holds(upTo: number), handedOut < number, "holds(upTo: \(number)), \(handedOut) handed out")
        }
        try agree(batch.count, batched.count, "the batch's count")
    }

    mutating func drain() throws {
        putBack()
        takeAll()
        while !batched.isEmpty { try handOutFromBatch() }  // ends: each iteration removes one
        try compare()
    }
}

private struct PortQueuePlay: ModelPlay, ~Copyable {
    private var pair: PortQueuePair

    init(_ random: inout SplitMix64) { pair = PortQueuePair(capacity: random.pick([1, 2, 3, 17, 40])) }

    mutating func step(_ random: inout SplitMix64) throws {
        switch random.below(200) {
        case 0: if random.below(8) == 0 { pair.close() }
        case 1..<100: try pair.put(withDate: false)
        case 100: try pair.put(withDate: true)
        case 101..<120: pair.takeAll()
        case 120..<130: try pair.takeFirst()
        case 130..<185: try pair.handOutFromBatch()
        default: pair.putBack()
        }
        try pair.compare()
    }

    mutating func finish() throws { try pair.drain() }
}

private struct ShortPortQueue: EnumerablePlay, ~Copyable {
    static let operationCount = 6
    private var pair: PortQueuePair

    init(start: Int) { pair = PortQueuePair(capacity: start + 1) }

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0: try pair.put(withDate: false)
        case 1: pair.takeAll()
        case 2: try pair.takeFirst()
        case 3: try pair.handOutFromBatch()
        case 4: pair.putBack()
        default: pair.close()
        }
        try pair.compare()
    }

    mutating func finish() throws { try pair.drain() }
}

@Suite struct PortQueueModelTests {
    @Test func `random senders and receivers have the same results as on an array`() throws {
        try playRandomly(PortQueuePlay.self, seeds: 0..<60, steps: 800)
    }

    @Test func `every short sequence has the same results as on an array`() throws {
        try playAllSequences(ShortPortQueue.self, length: 6, starts: 2)
    }

    /// The senders are threads, but the steps are sequential: each thread waits in the queue before the next step.
    @Test(arguments: 0..<12 as Range<UInt64>)
    func `threads that wait for room get it in the order of their arrival`(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let play = WaitingPlay(capacity: random.pick([1, 2, 5]))
        defer { play.end() }
        for id in 1...80 as ClosedRange<UInt32> {
            do { if random.below(2) == 0 { try play.send(id) } else { try play.receive() } } catch {
                throw Divergence("seed \(seed), step \(id): \(error)")
            }
        }
    }
}

/// A queue, and threads that wait for room in it.
private final class WaitingPlay {
    private let shared: SharedQueue
    private let capacity: Int
    private var threads: [JoinableThread<Void>] = []
    /// The results of the waits, in the order in which the waits end: "12 behind".
    private let ends = Box<[String]>([])
    private var expectedEnds: [String] = []
    private var queued: [UInt32] = []
    private var waiting: [UInt32] = []

    init(capacity: Int) {
        shared = SharedQueue(PortQueue(capacity: capacity))
        self.capacity = capacity
    }

    /// Sends; if there is no room, a thread waits for it.
    func send(_ id: UInt32) throws {
        if queued.count < capacity {
            try agree(shared.queue.put(Message(id: id)), queued.isEmpty ? .first : .behind, "put \(id)")
            queued.append(id)
            return
        }
        try agree(shared.queue.put(Message(id: 1_000)), .full, "put without waiting")
        if waiting.count == 4 { return }
        threads.append(
            plainThread { [shared, ends] in
                let outcome = shared.queue.put(Message(id: id), before: .distantFuture)
                ends.change { $0.append("\(id) \(outcome)") }
            })
        waiting.append(id)
        try waitUntil("the thread waits for room") { shared.queue.senderCount == waiting.count }
    }

    /// Delivers one message; the thread that has waited longest gets its room.
    func receive() throws {
        let message = shared.queue.takeFirst()
        try agree(message?.id, queued.first, "takeFirst")
        if message == nil { return }
        queued.removeFirst()
        let foundItEmpty = !waiting.isEmpty && queued.isEmpty
        shared.queue.makeRoom()
        try agree(shared.queue.fillRoom(), foundItEmpty, "a thread that waited found the queue empty")
        if !waiting.isEmpty {
            let id = waiting.removeFirst()
            queued.append(id)
            expectedEnds.append("\(id) \(foundItEmpty ? "first" : "behind")")
            try waitUntil("a thread's wait ends") { ends.value.count == expectedEnds.count }
            try agree(ends.value, expectedEnds, "the ends of the waits")
        }
        try agree(shared.queue.count, queued.count, "count")
        try agree(shared.queue.senderCount, waiting.count, "senderCount")
    }

    /// Closes the queue, which ends every wait.
    func end() {
        let waited = ends.value.count
        shared.queue.close()
        for thread in threads { #expect(throws: Never.self) { try thread.join() } }
        #expect(ends.value.dropFirst(waited).allSatisfy { $0.hasSuffix("closed") })
        #expect(ends.value.count == threads.count && shared.queue.senderCount == 0)
    }
}

private final class SharedQueue: Sendable {
    let queue: PortQueue
    init(_ queue: consuming PortQueue) { self.queue = queue }
}
