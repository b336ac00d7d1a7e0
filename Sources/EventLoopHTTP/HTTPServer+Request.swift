// A request, as a handler gets it.

#if HTTP

public import EventLoop
public import HTTPTypes

extension HTTPServer {
    /// A request, received whole.
    public struct Request: Sendable {
        private enum Head: Sendable {
            case received(ReceivedHead)
            case made(HTTPRequest)
        }
        private var source: Head

        /// The body, without its chunks.
        public var body: [UInt8]
        /// The client's address, or that of the proxy in front; nil on Unix sockets.
        public var peer: RunLoop.SocketAddress?

        /// A request of your own, for tests of a handler.
        public init(head: HTTPRequest, body: [UInt8] = [], peer: RunLoop.SocketAddress? = nil) {
            (source, self.body, self.peer) = (.made(head), body, peer)
        }

        init(_ head: ReceivedHead, _ body: [UInt8], _ peer: RunLoop.SocketAddress?) {
            (source, self.body, self.peer) = (.received(head), body, peer)
        }

        /// Method, target and fields. `authority` is what the field `Host` or an absolute target says; the field is not among the others. Made
        /// when it is first asked for.
        public var head: HTTPRequest {
            get {
                switch source {
                case .received(let head): head.made
                case .made(let head): head
                }
            }
            set { source = .made(newValue) }
        }

        /// Path and query as sent.
        private var target: String {
            switch source {
            case .received(let head): head.target
            case .made(let head): head.path ?? ""
            }
        }

        /// The path without the query, as sent: percent escapes are not decoded, so that `%2F` is no slash.
        public var path: String {
            let target = target
            guard let mark = target.utf8.firstIndex(of: UInt8(ascii: "?")) else { return target }
            return String(target[..<mark])
        }

        /// The query's names and values in their order, decoded: `+` is a space, and percent escapes are bytes of UTF-8. Bad escapes stay as
        /// sent, and invalid UTF-8 is replaced by U+FFFD.
        public var query: [(name: String, value: String)] {
            let target = target
            guard let mark = target.utf8.firstIndex(of: UInt8(ascii: "?")) else { return [] }
            return target.utf8[target.utf8.index(after: mark)...].split(separator: UInt8(ascii: "&")).map { pair in
                let sign = pair.firstIndex(of: UInt8(ascii: "=")) ?? pair.endIndex
                return (Self.decoded(pair[..<sign]), Self.decoded(pair[sign...].dropFirst()))
            }
        }

        private static func decoded(_ bytes: Substring.UTF8View) -> String {
            var decoded: [UInt8] = []
            decoded.reserveCapacity(bytes.count)
            var rest = bytes
            while let byte = rest.popFirst() {  // ends: with the bytes
                guard byte == UInt8(ascii: "%") else {
                    decoded.append(byte == UInt8(ascii: "+") ? .space : byte)
                    continue
                }
                let digits = rest.prefix(2)
                if digits.count == 2, let high = digits.first?.hexadecimalValue, let low = digits.last?.hexadecimalValue {
                    decoded.append(high << 4 | low)
                    rest = rest.dropFirst(2)
                } else {
                    decoded.append(byte)
                }
            }
            return String(decoding: decoded, as: UTF8.self)
        }
    }
}

#endif
