// Messages of a stream, for tasks.
//
// Only the iterator is generic, and it can be specialized where it is used: generic code that is not asks the runtime for the metadata of each
// type that it makes of `Frame`, which took three fifths of a message (W22.pairs-tasks).

import EventLoop
import EventLoopLibC
import Synchronization

extension ByteStream {
    /// Whole messages, as `framing` cuts them. Back-pressure reaches the peer: nothing is read ahead beyond `receiveLimit`.
    ///
    /// Iterating throws what `framing` throws, and then the stream has ended with `.failed`; `StreamError.endedEarly` if the stream ends
    /// inside a message; other errors as `read(upTo:)`. What the iterator has not consumed stays in the stream, so other calls may read on
    /// from there.
    public func frames<F: StreamFraming>(_ framing: F) -> Frames<F> { Frames(stream: self, framing: framing) }

    /// Lines without their LF or CRLF; the last one may lack it. A longer one throws `StreamError.frameTooLong`.
    public func lines(limit: Int = 65_536) -> Frames<LineFraming> { frames(LineFraming(limit: limit)) }

    /// The next line without its LF or CRLF; nil at the end of the stream. For a protocol of a few lines, where a loop over `lines()` does not fit.
    /// Errors as there. O(line) for each piece in which the line comes.
    public func readLine(limit: Int = 65_536, isolation: isolated (any Actor)? = #isolation) async throws -> String? {
        var lines = lines(limit: limit).makeAsyncIterator()
        return try await lines.next(isolation: isolation)
    }

    /// The messages of a stream. It has one iterator: a second one is a precondition failure.
    public struct Frames<F: StreamFraming>: AsyncSequence, Sendable {
        public typealias Element = F.Frame

        private let stream: ByteStream
        private let framing: F
        private let use = Use()

        private final class Use: Sendable {
            let isTaken = Atomic<Bool>(false)
        }

        init(stream: ByteStream, framing: F) { (self.stream, self.framing) = (stream, framing) }

        public func makeAsyncIterator() -> AsyncIterator {
            precondition(
                !use.isTaken.exchange(true, ordering: .relaxed),
                "these frames have an iterator already; call frames(_:) again for another one")
            return AsyncIterator(stream: stream, framing: framing)
        }

        public struct AsyncIterator: AsyncIteratorProtocol {
            @usableFromInline let stream: ByteStream
            @usableFromInline var framing: F

            init(stream: ByteStream, framing: F) { (self.stream, self.framing) = (stream, framing) }

            @inlinable
            public mutating func next() async throws -> F.Frame? { try await next(isolation: nil) }

            /// The next message; nil at the end of the stream.
            @inlinable
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> F.Frame? { /* DOES CALLOUT */
                try Task.checkCancellation()
                while true {  // ends: each wait ends with more bytes, or with the end of the stream
                    var framed = stream.beginFraming()
                    let frame: F.Frame?
                    do { frame = try framing.next(in: &framed.bytes, isLast: framed.isLast) } catch {
                        stream.failFraming(framed, error)
                        throw error
                    }
                    if let frame {
                        stream.endFraming(framed)
                        return frame
                    }
                    guard let held = try stream.endFramingWithoutMessage(framed) else { return nil }
                    try await stream.waitForMore(than: held, isolation: actor)
                }
            }
        }
    }
}

/// The input of a stream while its framing looks for a message.
@usableFromInline
struct FramedInput: ~Copyable {
    fileprivate var input: InputBuffer
    /// The bytes of `input`, which does not change while this exists.
    @usableFromInline var bytes: ReceivedBytes
    /// The peer has sent its last byte. Not that of `bytes`, which the framing can replace.
    @usableFromInline let isLast: Bool
}

extension ByteStream {
    /// The framing has the input to itself; what comes meanwhile goes behind it. One of the three below must follow.
    @usableFromInline
    func beginFraming() -> FramedInput { core.beginFraming() }

    /// The framing has found a message.
    @usableFromInline
    func endFraming(_ framed: consuming FramedInput) { /* DOES CALLOUT */
        var actions = StreamActions()
        core.lock()
        _ = core.returnInputLocked(framed, &actions)
        core.unlock()
        core.perform(actions)
    }

    /// Nobody knows where the next message begins, so the stream ends.
    @usableFromInline
    func failFraming(_ framed: consuming FramedInput, _ error: any Error) { /* DOES CALLOUT */
        let isTooLong = if case .frameTooLong? = error as? StreamError { true } else { false }
        var actions = StreamActions()
        core.lock()
        _ = core.returnInputLocked(framed, &actions)
        core.endLocked(.failed(.system(operation: "framing", errno: isTooLong ? EMSGSIZE : EBADMSG)), &actions)
        core.unlock()
        core.perform(actions)
    }

    /// How many bytes the input has, of which there must be more for a message; nil at the end of the stream. Throws what ended it otherwise.
    @usableFromInline
    func endFramingWithoutMessage(_ framed: consuming FramedInput) throws -> Int? { /* DOES CALLOUT */
        var actions = StreamActions()
        core.lock()
        let isLast = framed.isLast
        let held = core.returnInputLocked(framed, &actions)
        let result = Result { () throws -> Int? in
            if !isLast {
                // Bytes that came meanwhile, or the end, are looked at before the error that ended the stream.
                if core.locked.receiving.input.count <= held, !core.locked.receiving.isEnded { _ = try core.endOfReceivingLocked(&actions) }
                return held
            }
            if held > 0 {
                core.takeEndLocked(&actions)
                throw StreamError.endedEarly
            }
            _ = try core.endOfReceivingLocked(&actions)
            return nil
        }
        core.unlock()
        core.perform(actions)
        return try result.get()
    }

    /// Waits until the input has more than `held` bytes, or nothing more comes.
    @usableFromInline
    func waitForMore(than held: Int, isolation: isolated (any Actor)?) async throws { /* DOES CALLOUT */
        let limit = core.options.receiveLimit
        _ = try await core.wait(.more(than: held, limit: held < limit ? limit : held + limit), isolation: isolation)
    }
}

extension StreamCore {
    fileprivate func beginFraming() -> FramedInput {
        var input = InputBuffer()
        lock()
        preconditionReadableLocked()
        locked.receiving.isBusy = true
        swap(&input, &locked.receiving.input)
        let isLast = locked.receiving.isEnded
        let bytes = ReceivedBytes(viewing: input.bytes, isLast: isLast, at: locked.receiving.consumed)
        unlock()
        return FramedInput(input: input, bytes: bytes, isLast: isLast)
    }

    /// How many bytes the framing has left.
    fileprivate func returnInputLocked(_ framed: consuming FramedInput, _ actions: inout StreamActions) -> Int {
        framed.input.dropFirst(framed.bytes.consumedCount)
        locked.receiving.consumed &+= UInt64(framed.bytes.consumedCount)
        locked.receiving.isBusy = false
        // Nothing is read or reported while a framing has the input, so the end may be due since.
        if locked.sending.failure != nil || locked.end != nil && !locked.isEndReported && locked.handlers.stream != nil {
            actions.delivers = true
        }
        let held = framed.input.count
        if keepsInputLocked { locked.receiving.input.prepend(framed.input) }
        beginWaitingLayerLocked(&actions)
        resumeReceivingLocked(&actions)
        return held
    }
}
