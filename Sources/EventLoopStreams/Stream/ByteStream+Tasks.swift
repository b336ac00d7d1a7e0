// The calls of tasks.

import EventLoop

extension ByteStream {
    /// At least one byte and at most `limit`; nil at the end of the stream. One task reads at a time (a precondition).
    ///
    /// Bytes that came before the stream ended are read first, unless it ended by `close()`, or is a socket and `closeAfterWriting()` ended it. Then
    /// throws `StreamError.closed` or `.timedOut`, the `SourceError`, or `RunLoopEnded`. Throws `CancellationError` if the task is cancelled; no byte
    /// is lost, and the stream stays usable.
    public func read(upTo limit: Int = 65_536, isolation: isolated (any Actor)? = #isolation) async throws -> [UInt8]? {
        precondition(limit > 0, "read(upTo:) reads at least one byte, so its limit must be positive, not \(limit)")
        try Task.checkCancellation()
        switch try core.takeReceived(atLeast: 1, upTo: limit) {
        case .bytes(let bytes): return bytes
        case .end: return nil
        case .nothing: return try await core.wait(.bytes(limit: limit), isolation: isolation)
        }
    }

    /// Exactly so many; throws `StreamError.endedEarly` when the stream ends before. May read more than `receiveLimit` for that. Other errors as
    /// `read(upTo:)`.
    public func read(exactly count: Int, isolation: isolated (any Actor)? = #isolation) async throws -> [UInt8] {
        precondition(count >= 0, "read(exactly:) cannot read \(count) bytes")
        if count == 0 { return [] }
        try Task.checkCancellation()
        while true {  // ends: each wait ends with enough bytes, or with the end of the stream
            switch try core.takeReceived(atLeast: count, upTo: count) {
            case .bytes(let bytes): return bytes
            case .end: throw StreamError.endedEarly
            case .nothing: _ = try await core.wait(.more(than: count - 1, limit: count), isolation: isolation)
            }
        }
    }

    /// Returns when the bytes are queued. Waits while `highWater` bytes wait to be sent; a call that finds less does not wait, however much it
    /// writes. Bytes of one call stay together, calls keep their order. What tasks write on the loop's thread in one pass leaves in one
    /// system call when the pass ends; a full `highWater`, `finishWriting` and `closeAfterWriting` send at once. Whenever tasks have written 512
    /// KiB, the call returns when others have had their turn, also if the kernel takes everything.
    ///
    /// Throws `StreamError.closed` after `close()`, `closeAfterWriting()` or `finishWriting()`, `.timedOut`, the `SourceError`, or `RunLoopEnded`.
    /// Cancelled while it waits, it throws `CancellationError` and has queued nothing. A cancelled task may say goodbye: its calls that find room queue
    /// their bytes, up to the second such call.
    public func write(_ bytes: [UInt8], isolation: isolated (any Actor)? = #isolation) async throws {
        guard isOurs else { throw RunLoopEnded() }
        switch try core.write(bytes) {
        case .queued: return
        case .queuedLast: await Task.yield()
        case .full: try await core.waitToWrite(bytes, isolation: isolation)
        }
    }

    /// The text in UTF-8.
    public func write(_ text: String, isolation: isolated (any Actor)? = #isolation) async throws {
        try await write(Array(text.utf8), isolation: isolation)
    }

    /// Returns when everything written has been sent, and signals the end to the peer. Reading goes on.
    ///
    /// On a pipe, closes the writing end; a stream that has nothing else ends with `.closed`. Errors as `write`. Cancelled, it stops to wait; what it
    /// began goes on. If the task was cancelled before the call, nothing is begun; use `finishSending()`.
    public func finishWriting(isolation: isolated (any Actor)? = #isolation) async throws {
        guard isOurs else { throw RunLoopEnded() }
        try await core.finishWriting(isolation: isolation)
    }
}
