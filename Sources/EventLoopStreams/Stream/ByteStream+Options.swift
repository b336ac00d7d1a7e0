// The limits of a stream, and how it can end.

public import EventLoop

extension ByteStream {
    /// The limits of a stream. Timeouts are longer than zero. `receiveLimit` is positive, and `lowWater` is between zero and less than `highWater`; anything else is a
    /// precondition failure when a stream is made.
    public struct Options: Sendable {
        /// Every stream keeps its options: copies, and all defaults, share them.
        private var storage = Storage.defaults

        /// Received and not yet consumed; reading from the kernel pauses there.
        public var receiveLimit: Int {
            get { storage.values.receiveLimit }
            set { change { $0.receiveLimit = newValue } }
        }
        /// Written and not yet sent: at `highWater` writers wait, at `lowWater` they go on.
        public var highWater: Int {
            get { storage.values.highWater }
            set { change { $0.highWater = newValue } }
        }
        /// Bytes that wait to be written at which a paused writer goes on.
        public var lowWater: Int {
            get { storage.values.lowWater }
            set { change { $0.lowWater = newValue } }
        }
        /// Without a byte in either direction; ends the stream with `.timedOut`. In the loop's time.
        public var idleTimeout: Duration? {
            get { storage.values.idleTimeout }
            set { change { $0.idleTimeout = newValue } }
        }
        /// Bytes to send, and the peer takes none; ends the stream with `.timedOut`. In the loop's time.
        public var writeTimeout: Duration? {
            get { storage.values.writeTimeout }
            set { change { $0.writeTimeout = newValue } }
        }
        /// Nothing received for so long ends the stream with `.timedOut`, whatever is sent. (`idleTimeout` counts both directions.) It counts only
        /// while the stream reads: it stops while the stream is paused, while `receiveLimit` bytes wait, and while a handler or a framing has
        /// them, and starts again from zero when reading goes on. In the loop's time.
        public var receiveTimeout: Duration? {
            get { storage.values.receiveTimeout }
            set { change { $0.receiveTimeout = newValue } }
        }
        /// What is set on the socket before the first byte.
        public var socket: ByteStream.SocketOptions {
            get { changedSocket ?? .init() }
            set { change { $0.socket = newValue == .init() ? nil : ChangedSocketOptions(newValue) } }
        }
        /// Nil: the defaults.
        var changedSocket: ByteStream.SocketOptions? { storage.values.socket?.options }
        /// The defaults.
        public init() {}

        private struct Values: Sendable {
            var receiveLimit = 65_536
            var highWater = 65_536
            var lowWater = 16_384
            var idleTimeout: Duration?
            var writeTimeout: Duration?
            var receiveTimeout: Duration?
            /// Few streams have other socket options than the defaults, which are as large as all the rest.
            var socket: ChangedSocketOptions?
        }

        private final class Storage: Sendable {
            static let defaults = Storage(Values())
            let values: Values
            init(_ values: Values) { self.values = values }
        }

        private mutating func change(_ body: (inout Values) -> Void) {
            var values = storage.values
            body(&values)
            storage = Storage(values)
        }

        func check() {
            precondition(receiveLimit > 0, "a stream needs a positive receiveLimit, not \(receiveLimit)")
            precondition(
                lowWater >= 0 && lowWater < highWater,
                "a stream's lowWater (\(lowWater)) must not be negative, and must be less than its highWater (\(highWater))")
            precondition((idleTimeout ?? .seconds(1)) > .zero, "an idleTimeout is longer than zero; nil means none")
            precondition((receiveTimeout ?? .seconds(1)) > .zero, "a receiveTimeout is longer than zero; nil means none")
            precondition((writeTimeout ?? .seconds(1)) > .zero, "a writeTimeout is longer than zero; nil means none")
        }
    }

    private final class ChangedSocketOptions: Sendable {
        let options: SocketOptions
        init(_ options: SocketOptions) { self.options = options }
    }

    /// How a stream ended.
    public enum End: Sendable, Equatable {
        /// The peer has sent its last byte (and, in the `async` form, it has been read).
        case endOfStream
        /// `close()`, or `closeAfterWriting()` and everything was sent.
        case closed
        /// `idleTimeout`, `receiveTimeout` or `writeTimeout` passed.
        case timedOut
        /// The kernel reported an error.
        case failed(RunLoop.SourceError)
        /// The loop's thread has exited.
        case loopEnded
    }
}
