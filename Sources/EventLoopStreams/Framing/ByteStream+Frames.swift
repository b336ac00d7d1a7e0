// Messages of a stream, for tasks.

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
            private let stream: ByteStream
            private var framing: F

            init(stream: ByteStream, framing: F) { (self.stream, self.framing) = (stream, framing) }

            public mutating func next() async throws -> F.Frame? { try await next(isolation: nil) }

            /// The next message; nil at the end of the stream.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> F.Frame? { /* DOES CALLOUT */
                try Task.checkCancellation()
                while true {  // ends: each wait ends with more bytes, or with the end of the stream
                    switch try stream.core.nextFrame(&framing) {
                    case .frame(let frame): return frame
                    case .end: return nil
                    case .needsMore(let held, let limit): _ = try await stream.core.wait(.more(than: held, limit: limit), isolation: actor)
                    }
                }
            }
        }
    }
}

enum NextFrame<Frame> {
    case frame(Frame)
    case end
    /// More than the bytes that are held must come.
    case needsMore(held: Int, limit: Int)
}

extension StreamCore {
    /// The next message of the input. The framing has the input to itself; what comes meanwhile goes behind it.
    func nextFrame<F: StreamFraming>(_ framing: inout F) throws -> NextFrame<F.Frame> { /* DOES CALLOUT */
        var input = InputBuffer()
        lock()
        preconditionReadableLocked()
        locked.receiving.isBusy = true
        swap(&input, &locked.receiving.input)
        let (isLast, position) = (locked.receiving.isEnded, locked.receiving.consumed)
        unlock()
        var bytes = ReceivedBytes(viewing: input.bytes, isLast: isLast, at: position)
        let result = Result { try framing.next(in: &bytes, isLast: isLast) }
        input.dropFirst(bytes.consumedCount)
        var actions = StreamActions()
        lock()
        locked.receiving.consumed &+= UInt64(bytes.consumedCount)
        let next: Result<NextFrame<F.Frame>, any Error>
        do { next = .success(try returnFrameLocked(result, input, isLast: isLast, &actions)) } catch { next = .failure(error) }
        unlock()
        perform(actions)
        return try next.get()
    }

    private func returnFrameLocked<Frame>(
        _ result: Result<Frame?, any Error>, _ input: consuming InputBuffer, isLast: Bool, _ actions: inout StreamActions
    ) throws -> NextFrame<Frame> {
        locked.receiving.isBusy = false
        // Nothing is read or reported while a framing has the input, so the end may be due since.
        if locked.sending.failure != nil || locked.end != nil && !locked.isEndReported && locked.handlers.stream != nil {
            actions.delivers = true
        }
        let held = input.count
        if keepsInputLocked { locked.receiving.input.prepend(input) }
        beginWaitingLayerLocked(&actions)
        resumeReceivingLocked(&actions)
        switch result {
        case .success(let frame?): return .frame(frame)
        case .failure(let error):
            // Nobody knows where the next message begins.
            let isTooLong = if case .frameTooLong? = error as? StreamError { true } else { false }
            endLocked(.failed(.system(operation: "framing", errno: isTooLong ? EMSGSIZE : EBADMSG)), &actions)
            throw error
        case .success(nil):
            if isLast && held > 0 {
                takeEndLocked(&actions)
                throw StreamError.endedEarly
            }
            if isLast {
                _ = try endOfReceivingLocked(&actions)
                return .end
            }
            // Bytes that came meanwhile, or the end, are looked at before the error that ended the stream.
            if locked.receiving.input.count <= held, !locked.receiving.isEnded { _ = try endOfReceivingLocked(&actions) }
            return .needsMore(held: held, limit: held < options.receiveLimit ? options.receiveLimit : held + options.receiveLimit)
        }
    }
}
