// Rules proved here, against arrays:
// - After several queues have been merged and sorted, closures come out in the order of their sequences.
// - `firstSequence` is the sequence of the front. If the queue is empty, it is greater than any other.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct WorkQueuePlay: ModelPlay, ~Copyable {
    private static let queueCount = 3

    private var first = WorkQueue()
    private var second = WorkQueue()
    private var third = WorkQueue()
    private var models = [[UInt64]](repeating: [], count: queueCount)
    private var lastSequence: UInt64 = 0

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        let index = random.below(Self.queueCount)
        switch random.below(30) {
        case 0: try performAll()
        case 1..<8: try popFirst(index)
        default: append(index)
        }
        try compare()
    }

    mutating func finish() throws { try performAll() }

    private mutating func append(_ index: Int) {
        lastSequence += 1
        let item = WorkItem(sequence: lastSequence, body: {}, site: CreationSite(#fileID, #line), ticket: nil)
        withQueue(index) { $0.append(item) }
        models[index].append(lastSequence)
    }

    private mutating func popFirst(_ index: Int) throws {
        if models[index].isEmpty { return }
        try agree(withQueue(index) { $0.popFirst().sequence }, models[index].removeFirst(), "popFirst")
    }

    /// Like a pass: performs the closures of several queues in the order in which they were queued.
    private mutating func performAll() throws {
        var batch = WorkQueue()
        for index in [2, 0, 1] { withQueue(index) { batch.takeAll(from: &$0) } }
        batch.sort { $0.sequence < $1.sequence }
        let expected = models.flatMap { $0 }.sorted()
        try agree(batch.firstSequence, expected.first ?? .max, "the batch's first sequence")
        try agree(batch.removeAll().map(\.sequence), expected, "the batch")
        models = [[UInt64]](repeating: [], count: Self.queueCount)
        try compare()
    }

    private mutating func compare() throws {
        for index in 0..<Self.queueCount {
            try agree(withQueue(index) { $0.firstSequence }, models[index].first ?? .max, "firstSequence of \(index)")
            try agree(withQueue(index) { $0.count }, models[index].count, "count of \(index)")
        }
    }

    private mutating func withQueue<R>(_ index: Int, _ body: (inout WorkQueue) -> R) -> R {
        switch index {
        case 0: body(&first)
        case 1: body(&second)
        default: body(&third)
        }
    }
}

@Suite struct WorkQueueModelTests {
    @Test func `closures of several queues are performed in the order in which they were queued`() throws {
        try playRandomly(WorkQueuePlay.self, seeds: 0..<30, steps: 400)
    }
}
