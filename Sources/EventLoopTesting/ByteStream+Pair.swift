// Two streams that are connected in memory.

public import EventLoop
public import EventLoopStreams

extension ByteStream {
    /// Makes two streams that are connected to each other in memory, for tests of code that uses streams.
    ///
    /// No descriptor is used, so the same test always does the same in manual time, if both streams are on one loop. Back-pressure works as
    /// with sockets: a direction holds `capacity` bytes that the other end has not read; then its writing end waits. A stream that is closed
    /// ends the other one with `.endOfStream` after what it has sent; writing to it fails with EPIPE.
    ///
    /// - Parameters:
    ///   - loop: of the first stream.
    ///   - other: the loop of the second stream; nil: the same loop. In manual time both use one clock.
    ///   - mode: of both streams.
    ///   - options: of both streams.
    ///   - otherOptions: of the second stream, if it has others.
    ///   - capacity: positive.
    ///   - seed: splits what is sent at places that depend on the seed only, so that code which relies on receiving whole messages fails. The
    ///     pieces have between 1 and 2,048 bytes, short ones as often as long ones. Nil: a stream receives as much as there is.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    /// - Throws: `.loopEnded` if a loop has ended.
    ///
    /// Thread-safe.
    public static func pair(
        on loop: RunLoop, and other: RunLoop? = nil, mode: RunLoop.Mode = .common, options: Options = Options(),
        otherOptions: Options? = nil, capacity: Int = 65_536, seed: UInt64? = nil, file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) -> Pair {
        precondition(capacity > 0, "a connection in memory needs a positive capacity, not \(capacity)")
        let link = MemoryLink(capacity: capacity, seed: seed)
        let first = try ByteStream(
            over: MemoryTransport(link, end: 0), on: loop, mode: mode, options: options, label: "first", file: file, line: line)
        let second = try ByteStream(
            over: MemoryTransport(link, end: 1), on: other ?? loop, mode: mode, options: otherOptions ?? options, label: "second",
            file: file,
            line: line)
        return Pair(first: first, second: second, link: link)
    }

    /// Two connected streams, and what a test can do to their connection. Thread-safe.
    public struct Pair: Sendable {
        /// One end.
        public let first: ByteStream
        /// The other end.
        public let second: ByteStream
        let link: MemoryLink

        /// One of the two ways of a connection.
        public enum Direction: Sendable {
            /// What `first` writes and `second` reads.
            case firstToSecond
            /// What `second` writes and `first` reads.
            case secondToFirst

            var end: Int { self == .firstToSecond ? 0 : 1 }
        }

        /// Resets the connection: both streams end with `.failed` and ECONNRESET. Bytes that are on their way are received first.
        public func reset() { link.reset() }

        /// Resets the connection when `count` bytes have been sent in this direction since the pair was made, or at once if it has been more.
        /// The receiving stream gets exactly `count` bytes.
        public func reset(after count: Int, _ direction: Direction) {
            preconditionCount(count)
            link.reset(from: direction.end, after: count)
        }

        /// Ends this direction when `count` bytes have been sent in it since the pair was made, or at once if it has been more: the receiving
        /// stream gets exactly `count` bytes and then the end. The sending stream does not notice; what it sends beyond is lost.
        public func endOfStream(after count: Int, _ direction: Direction) {
            preconditionCount(count)
            link.finish(from: direction.end, after: count)
        }

        /// Nothing arrives in this direction until `resume`. Bytes that are sent are on their way, up to the capacity; then the sending stream
        /// sends no more, as if the peer read nothing. A reset does not wait for `resume`: held bytes are lost with it.
        public func hold(_ direction: Direction) { link.hold(from: direction.end, true) }

        /// Held bytes arrive.
        public func resume(_ direction: Direction) { link.hold(from: direction.end, false) }

        /// How many bytes have been sent in this direction and not received.
        public func bytesOnTheirWay(_ direction: Direction) -> Int { link.counts(from: direction.end).onTheirWay }

        private func preconditionCount(_ count: Int) {
            precondition(count >= 0, "a connection cannot end after \(count) bytes; the number must not be negative")
        }
    }
}
