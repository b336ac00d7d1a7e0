// The limits of a server.

#if HTTP

public import EventLoopStreams

extension HTTPServer {
    /// The limits of a server. Timeouts are longer than zero, and limits are positive; only `bodyLimit` may be zero. Anything else is a precondition
    /// failure when a server is made.
    public struct Options: Sendable {
        /// Bytes of a request's head: a longer target is answered with 414, longer fields with 431. More than 1,000 fields are 431, too.
        public var headLimit = 16_384
        /// Bytes of a request's body, which is held in memory: 413. With zero, requests have no bodies.
        public var bodyLimit = 1_048_576
        /// Connections at a time; further ones wait in the kernel's queue. Nil: as many as the process has descriptors, of which
        /// a connection takes two from the first handler on that has run for 50 ms.
        public var connectionLimit: Int?
        /// From the first byte of a request to its last, head and body together: 408. Not the handler. Also for `prepareConnection`: the connection is
        /// closed. In the loop's time.
        public var requestTimeout: Duration = .seconds(30)
        /// Without a request on a connection that is kept, and without a byte taken by a client that has an answer to take: the connection is
        /// closed. In the loop's time.
        public var idleTimeout: Duration = .seconds(60)
        /// Called with each connection before its first byte is read, for TLS: `{ try await $0.startTLS(certificate) }`. With it, the
        /// requests have the scheme `https`. If it throws, or takes longer than `requestTimeout`, the connection is closed. It may not read or write the
        /// stream otherwise.
        public var prepareConnection: (@Sendable (ByteStream) async throws -> Void)?
        /// The defaults.
        public init() {}

        var parserLimits: RequestParser.Limits {
            RequestParser.Limits(head: headLimit, body: bodyLimit, isSecure: prepareConnection != nil)
        }

        func check(_ file: StaticString, _ line: UInt) {
            precondition(headLimit > 0, "a server needs a positive headLimit, not \(headLimit)", file: file, line: line)
            precondition(bodyLimit >= 0, "a server's bodyLimit must not be negative, as \(bodyLimit) is", file: file, line: line)
            precondition(
                requestTimeout > .zero, "a server's requestTimeout is longer than zero, not \(requestTimeout)", file: file, line: line)
            precondition(idleTimeout > .zero, "a server's idleTimeout is longer than zero, not \(idleTimeout)", file: file, line: line)
        }
    }
}

#endif
