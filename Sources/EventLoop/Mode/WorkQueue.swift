// Closures in the order in which they were queued.

/// Queued closures. One owner at a time: the loop's lock, or its thread.
typealias WorkQueue = Deque<WorkItem>

extension Deque where Element == WorkItem {
    /// Greater than any other when the queue is empty.
    @inline(__always)
    var firstSequence: UInt64 { withFirst { $0.sequence } ?? .max }

    /// Puts closures from several queues into the order in which they were queued.
    mutating func sort() { sort { $0.sequence < $1.sequence } }
}
