// What a client sends to a named port, for threads and for tasks.

internal import CPlatform
public import EventLoop

extension RunLoop.RemoteMessagePort {
    // MARK: For threads

    /// Sends a one-way message. Blocks until there is room for it, for at most `timeout` in real time; zero or less tries once.
    ///
    /// The message arrives unless the other end goes away first. The sender does not learn whether it was handled. The receiver gets copies of
    /// the `descriptors`, at most 64; the caller still owns these.
    ///
    /// - Throws: `.sendTimedOut`, and then the message does not arrive; `.messageTooLarge`; `.invalidPort`; `.becameInvalid`;
    ///   `.system`.
    @available(*, noasync, message: "this send blocks the thread; write `try await send(…)`, which suspends the task")
    public func send(
        id: Int32, data: [UInt8] = [], descriptors: [Int32] = [], timeout: Duration
    ) throws(RunLoop.PortError) {
        try connection.send(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
    }

    /// Sends a request and waits for the reply: the handler's value, nil or not.
    ///
    /// Without `replyMode` the thread blocks. With one, the calling thread's loop runs in that mode, repeatedly, until the reply has
    /// arrived, also while there is no room for the request. Other items of the mode are served meanwhile; use a mode of your own to
    /// avoid that. A stop ends one of these runs, and not the wait. A port that the same thread serves replies only if it is in
    /// `replyMode`. Times are real, except that `replyTimeout` uses the clock of the loop if it runs. A `replyTimeout` of zero checks
    /// once. The receiver gets copies of the `descriptors`, at most 64; the caller still owns these.
    ///
    /// - Throws: `.sendTimedOut`, and then the request does not arrive; `.replyTimedOut`, and a later reply is dropped;
    ///   `.becameInvalid` if either end goes away meanwhile; `.invalidPort` if it went away before; `.messageTooLarge` for the request
    ///   or the reply; `.protocolViolation`; `.system`.
    @available(*, noasync, message: "this request blocks the thread; write `try await request(…, timeout:)`, which suspends the task")
    public func request(
        id: Int32, data: [UInt8] = [], descriptors: [Int32] = [], sendTimeout: Duration, replyTimeout: Duration,
        replyMode: RunLoop.Mode? = nil
    ) throws(RunLoop.PortError) -> [UInt8]? { /* DOES CALLOUT */
        guard let replyMode else {
            let cancellation = cplatform_hold_cancellation()
            defer { cplatform_resume_cancellation(cancellation) }
            let waiter = ReplyWaiter(.thread)
            try connection.sendRequest(waiter, id: id, data: data, descriptors: descriptors, deadline: Self.deadline(sendTimeout))
            return try connection.awaitReply(waiter, Self.deadline(replyTimeout))
        }
        precondition(
            replyMode != .common,
            "replyMode is .common, but a loop runs in a single mode: pass one of the common modes, or a mode of your own")
        let loop = RunLoop.threadsLoop()
        // Before other sources of the mode, as in CFMessagePort.
        let source = RunLoop.CustomSource(order: -100, label: "reply") {}
        let waiter = ReplyWaiter(.loop(loop, source))
        try connection.startRequest(waiter, id: id, data: data, descriptors: descriptors)
        return try connection.runUntilReply(
            waiter, source, loop, replyMode, sendDeadline: Self.deadline(sendTimeout), replyTimeout: replyTimeout)
    }

    // MARK: For tasks

    /// Sends a one-way message. Suspends the task until there is room for it, for at most `timeout` in real time; zero or less tries once.
    ///
    /// The message arrives unless the other end goes away first. The sender does not learn whether it was handled. If the task is
    /// cancelled, the call fails at once, as if it had timed out. If it was cancelled before, nothing is sent. The receiver gets copies of the
    /// `descriptors`, at most 64; the caller still owns these, and keeps them open until the call returns.
    ///
    /// - Throws: the errors of the blocking call.
    public func send(id: Int32, data: [UInt8] = [], descriptors: [Int32] = [], timeout: Duration) async throws(RunLoop.PortError) {
        try await connection.sendOfTask(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
    }

    /// Sends a request and suspends until the reply has come.
    ///
    /// `timeout`, in real time, covers sending and waiting. If the task is cancelled, the call fails at once, as if it had timed out.
    /// If it was cancelled before, nothing is sent. The receiver gets copies of the `descriptors`, at most 64; the caller still owns these, and
    /// keeps them open until the call returns.
    ///
    /// - Throws: the errors of the blocking call.
    public func request(
        id: Int32, data: [UInt8] = [], descriptors: [Int32] = [], timeout: Duration
    ) async throws(RunLoop.PortError) -> [UInt8]? {
        try await connection.requestOfTask(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
    }

    private static func deadline(_ timeout: Duration) -> RunLoop.Instant { .now.advanced(by: timeout) }
}
