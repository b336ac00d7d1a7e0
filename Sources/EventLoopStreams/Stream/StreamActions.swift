// Tasks that wait for a stream, and what a change of its state makes necessary outside its lock.
//
// Tasks are objects here: a continuation in the state itself would have each copy of it, and each test for nil, ask the runtime for its layout.

/// A task that waits for bytes.
final class Reader: @unchecked Sendable {
    // SAFETY: constants; the thread that removes the reader from the state sets `answer` under the stream's lock, and is the only one to read it.

    enum Need {
        /// The task takes between one byte and so many.
        case bytes(limit: Int)
        /// The task looks again when the input has more than so many. Up to `limit` may be read for it.
        case more(than: Int, limit: Int)
    }

    let need: Need
    let ticket: UInt64
    /// Checked, because ThreadSanitizer does not follow an unsafe one that is resumed before its task has suspended.
    private let continuation: CheckedContinuation<[UInt8]?, any Error>
    /// The bytes, or none: look again. Nil: the end of the stream.
    var answer: Result<[UInt8]?, any Error> = .success(nil)

    init(_ need: Need, ticket: UInt64, _ continuation: CheckedContinuation<[UInt8]?, any Error>) {
        (self.need, self.ticket, self.continuation) = (need, ticket, continuation)
    }

    func resume() { continuation.resume(with: answer) }
}

/// A task that waits for room, until everything is sent, or for the end of a handshake; or bytes of `send` behind such a task.
final class Sender: @unchecked Sendable {
    // SAFETY: constants; the thread that removes the sender from the state sets `error` under the stream's lock, and is the only one to read it.

    /// What it writes.
    let bytes: [UInt8]
    let ticket: UInt64
    /// Nil for bytes of `send`, for which nobody waits.
    private let continuation: CheckedContinuation<Void, any Error>?
    var error: (any Error)?
    var isTask: Bool { continuation != nil }

    init(_ bytes: [UInt8], ticket: UInt64 = 0, _ continuation: CheckedContinuation<Void, any Error>? = nil) {
        (self.bytes, self.ticket, self.continuation) = (bytes, ticket, continuation)
    }

    func resume() { if let error { continuation?.resume(throwing: error) } else { continuation?.resume() } }
}

/// Collected under the lock, carried out by `StreamCore.perform` after it.
struct StreamActions: ~Copyable {
    private(set) var reader: Reader?
    private(set) var senders: [Sender] = []
    /// Handlers are to be called.
    var delivers = false
    /// The transport leaves the loop, and the timer too.
    var closes = false
    /// The transport knows that nothing more is written.
    var finishesWriting = false
    /// Those who wait for the peer's end are to learn of it.
    var peerFinishes = false
    /// Reading has stopped, so only the transport learns of the peer's end, if it watches for that.
    var watchesPeer = false
    /// The timer has a new date.
    var armsTimer = false

    mutating func resume(_ reader: Reader, _ answer: Result<[UInt8]?, any Error>) {
        reader.answer = answer
        self.reader = reader
    }

    mutating func resume(_ sender: Sender, throwing error: (any Error)? = nil) {
        sender.error = error
        senders.append(sender)
    }
}
