// Rule proved here: an error of a stream says what happened, with its values.

import EventLoopStreams
import Testing

@Suite struct StreamErrorTests {
    @Test(arguments: [
        (StreamError.closed, "the stream is closed"),
        (.endedEarly, "the stream ended inside a frame"),
        (.timedOut, "the time limit has passed"),
        (.frameTooLong(limit: 80), "a frame is longer than its limit of 80 bytes"),
        (.nameServiceFailed(host: "db.example", reason: "Try again"), "the lookup of db.example failed: Try again"),
        (.hostNotFound(host: "db.example", reason: "Name or service not known"), "no address for db.example: Name or service not known"),
    ])
    func `an error of a stream describes itself`(error: StreamError, text: String) { #expect("\(error)" == text) }
}
