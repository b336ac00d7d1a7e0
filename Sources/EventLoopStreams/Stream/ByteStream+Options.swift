// The limits of a stream, and how it can end.

public import EventLoop

extension ByteStream {
    /// The limits of a stream. Timeouts are longer than zero. `receiveLimit` is positive, and `lowWater` is between zero and less than `highWater`; anything else is a
    /// precondition failure when a stream is made.
    public struct Options: Sendable {
        /// Received and not yet consumed; reading from the kernel pauses there.
        public var receiveLimit = 65_536
        /// Written and not yet sent: at `highWater` writers wait, at `lowWater` they go on.
        public var highWater = 65_536
        /// Bytes that wait to be written at which a paused writer goes on.
        public var lowWater = 16_384
        /// Without a byte in either direction; ends the stream with `.timedOut`. In the loop's time.
        public var idleTimeout: Duration?
        /// Bytes to send, and the peer takes none; ends the stream with `.timedOut`. In the loop's time.
        public var writeTimeout: Duration?
        /// The defaults.
        public init() {}

        func check() {
            precondition(receiveLimit > 0, "a stream needs a positive receiveLimit, not \(receiveLimit)")
            precondition(
                lowWater >= 0 && lowWater < highWater,
                "a stream's lowWater (\(lowWater)) must not be negative, and must be less than its highWater (\(highWater))")
            precondition((idleTimeout ?? .seconds(1)) > .zero, "an idleTimeout is longer than zero; nil means none")
            precondition((writeTimeout ?? .seconds(1)) > .zero, "a writeTimeout is longer than zero; nil means none")
        }
    }

    /// How a stream ended.
    public enum End: Sendable, Equatable {
        /// The peer has sent its last byte (and, in the `async` form, it has been read).
        case endOfStream
        /// `close()`, or `closeAfterWriting()` and everything was sent.
        case closed
        /// `idleTimeout` or `writeTimeout` passed.
        case timedOut
        /// The kernel reported an error.
        case failed(RunLoop.SourceError)
        /// The loop's thread has exited.
        case loopEnded
    }
}
