// What `eventloop-demo ctl` and a server say to each other through message ports.

enum ControlMessage {
    /// To the server. The reply is the table.
    static let status: Int32 = 1
    /// To the server. The data is the name of a port of the sender, to which the server sends `progress` and `stopped`. The reply is a
    /// sentence.
    static let stop: Int32 = 2

    /// To the sender of `stop`: a sentence.
    static let progress: Int32 = 10
    /// The server has stopped serving; nothing follows. `stoppedUnanswered` if requests were left without an answer.
    static let stopped: Int32 = 11
    static let stoppedUnanswered: Int32 = 12
}
