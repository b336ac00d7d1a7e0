// The handlers of a stream. Their order: bytes, room, the end.

extension ByteStream {
    /// Called when bytes have come, on the loop's thread; what the body leaves in `bytes` is there the next time, with more behind it.
    ///
    /// When the peer has sent its last byte, the body is called a last time, with `isLast` set; what it sends then is sent before `onEnd`. A
    /// body that leaves `receiveLimit` bytes or more pauses reading: after the call `isReading` is false, and the body is called again when
    /// somebody sets it to true. If that happened before the call returned, on any thread, the body is called again at once. If this is set
    /// late, the body hears of everything before. Setting it again replaces the body; set during a call, the new body is called with what that
    /// call leaves, also if it was the last. After a hundred bodies in a row that set another one and take nothing, the next waits for more bytes; at
    /// the end it is not called. Bytes are not copied for the body, except those that it has left.
    ///
    /// A precondition failure on a stream that a task has read. Thread-safe.
    public func onReceive(_ body: @escaping @Sendable (_ stream: ByteStream, _ bytes: inout ReceivedBytes) -> Void) {
        core.setHandler(of: self) { core in
            precondition(
                !core.locked.receiving.isForTasks, "a task reads this stream; use handlers or async calls, never both on one stream")
            core.locked.handlers.receive = body
            // The handler that is being called has the input: this one hears of what it leaves.
            core.locked.receiving.isHandlerReplaced = core.locked.receiving.isBusy
            core.locked.receiving.isNew = !core.locked.receiving.input.isEmpty || core.locked.receiving.isEnded
        }
    }

    /// Called when what waits has fallen to `lowWater` after it had reached `highWater`, on the loop's thread. Thread-safe.
    public func onRoom(_ body: @escaping @Sendable (_ stream: ByteStream) -> Void) {
        core.setHandler(of: self) { core in
            core.locked.handlers.room = body
        }
    }

    /// Called once, last, on the loop's thread. If the stream has ended already, the body is called in a later pass; if the loop has ended, at
    /// once. The peer's last byte ends a stream only if a handler or a task reads it. Thread-safe.
    public func onEnd(_ body: @escaping @Sendable (_ stream: ByteStream, _ end: End) -> Void) {
        core.setHandler(of: self) { core in
            core.locked.handlers.end = body
        }
    }

    /// Queues bytes, any thread. False when `highWater` is reached (they are queued all the same), or when the stream has ended (they are not).
    ///
    /// Tries to send them at once if nothing waits. What a handler of received bytes sends after its first bytes goes out together, when it
    /// returns; after a call that has sent more than once, so do the first bytes of the next. A full `highWater` goes out at once.
    @discardableResult
    public func send(_ bytes: [UInt8]) -> Bool { isOurs && core.send(bytes) }

    /// The same for bytes in place: what the kernel takes at once is not copied. To pass on what has come:
    /// `bytes.withUnsafeBytes { _ = stream.send($0) }`, and then `bytes.consume(bytes.count)`.
    @discardableResult
    public func send(_ bytes: UnsafeRawBufferPointer) -> Bool { isOurs && core.send(bytes) }

    /// Signals the end to the peer, behind everything that was sent; reading goes on. Later calls of `send` answer false. Any thread. As
    /// `finishWriting`, for handlers: it waits for nothing.
    public func finishSending() { if isOurs { core.finishSending() } }

    /// The text in UTF-8.
    @discardableResult
    public func send(_ text: String) -> Bool { send(Array(text.utf8)) }

    /// Nothing is read while false. Set to true, it also has the handler called again with what it has left. Thread-safe.
    public var isReading: Bool {
        get { core.withLock { !core.locked.receiving.isPaused } }
        set { core.setReading(newValue) }
    }
}

extension StreamCore {
    func setHandler(of stream: ByteStream, _ body: (StreamCore) -> Void) {
        // Released outside the lock: the program's code may run then.
        var old = Handlers()
        defer { withExtendedLifetime(old) {} }
        change { actions in
            // After the report of the end nobody is called any more.
            if locked.isEndReported { return }
            old = locked.handlers
            body(self)
            locked.handlers.stream = stream
            actions.delivers = isDeliveryDueLocked
        }
    }

    func setReading(_ isReading: Bool) {
        change { actions in
            if locked.receiving.isPaused == !isReading { return }
            locked.receiving.isPaused = !isReading
            if !isReading { return }
            // A handler has the input. What it leaves is seen when it returns.
            if locked.receiving.isBusy { locked.receiving.callsAgain = true }
            if !locked.receiving.input.isEmpty || locked.receiving.isEnded { locked.receiving.isNew = true }
            resumeReceivingLocked(&actions)
            if isDeliveryDueLocked && locked.handlers.stream != nil { actions.delivers = true }
        }
    }
}
