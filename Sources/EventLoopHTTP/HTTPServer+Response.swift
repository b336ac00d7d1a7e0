// A response, as a handler makes it.

#if HTTP

public import HTTPTypes

extension HTTPServer {
    /// What a handler answers.
    public struct Response: Sendable {
        /// What follows the head.
        public enum Body: Sendable {
            /// The bytes.
            case bytes([UInt8])
            /// The contents of a regular file, which is read in pieces while it is sent. A file that is missing, or no regular file, is answered
            /// with 404. Paths of requests are the client's: check them.
            case file(path: String)
            /// Each element as it comes; the next one is asked for when the client has taken enough. In chunks, and for HTTP/1.0 up to the end
            /// of the connection. If it throws, the connection is cut, so that the client sees that the answer is not whole.
            case sequence(any AsyncSequence<[UInt8], any Error> & Sendable)
        }

        /// Status and fields. What it says of `Content-Length`, `Transfer-Encoding` and `Connection` is replaced by what is true. `Date` is
        /// added if there is none.
        public var head: HTTPResponse
        /// What follows the head. Not sent for HEAD, 204, 205 and 304.
        public var body: Body

        /// A response with these parts.
        public init(status: HTTPResponse.Status = .ok, headerFields: HTTPFields = [:], body: Body = .bytes([])) {
            head = HTTPResponse(status: status, headerFields: headerFields)
            self.body = body
        }

        /// The text in UTF-8, as `text/plain; charset=utf-8`.
        public static func text(_ text: String, status: HTTPResponse.Status = .ok) -> Response {
            Response(status: status, headerFields: [.contentType: "text/plain; charset=utf-8"], body: .bytes(Array(text.utf8)))
        }
    }
}

#endif
