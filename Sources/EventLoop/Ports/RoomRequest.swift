extension RunLoop.Port {
    /// Calls `body` once on `loop`'s thread when the port has room for a message or is invalid: the moment to send again.
    ///
    /// ```
    /// @Sendable func offer(_ message: RunLoop.PortMessage) {
    ///     do { try port.send(message) } catch .sendTimedOut { port.whenRoom(on: loop) { offer(message) } } catch { giveUp() }
    /// }
    /// ```
    ///
    /// If there is room already, `body` is called in the loop's next pass. Room is not reserved: if another sender takes it first, ask again. Senders
    /// that wait in `send(_:before:)` go first. Each delivery of a message notifies the oldest request, that of the last message all that are left:
    /// none waits in vain. If the port becomes invalid, all are notified, and their next `send` throws `.invalidPort`.
    ///
    /// `body` is performed like a closure of `perform(inModes:_:)`. A request that waits keeps no mode from being empty. If the loop ends, `body` is
    /// not called. The port retains the request, and with it `body`, until it is notified or cancelled. Thread-safe.
    @discardableResult
    public func whenRoom(
        on loop: RunLoop, inModes modes: [RunLoop.Mode] = RunLoop.Mode.onlyCommon, _ body: @escaping @Sendable () -> Void
    ) -> RunLoop.RoomRequest {
        loop.shared.preconditionOurs()
        let request = RunLoop.RoomRequest(self, loop, modes, body)
        queue.enqueue(request)
        return request
    }
}

extension RunLoop {
    /// The token of a request for room in a port (`Port.whenRoom`). Releasing it does not cancel the request.
    public final class RoomRequest: @unchecked Sendable {
        // SAFETY: constants, and a weak reference that is set once; the lock of the port's queue guards `ticket`.
        private let loop: RunLoop
        private let modes: [Mode]
        /// Weak, because the port retains the request.
        private weak var port: Port?
        private let body: HandlerSlot<@Sendable () -> Void>
        var ticket: LinkedQueue<RoomRequest>.Ticket?

        init(_ port: Port, _ loop: RunLoop, _ modes: [Mode], _ body: @escaping @Sendable () -> Void) {
            (self.loop, self.modes) = (loop, modes)
            self.port = port
            self.body = HandlerSlot(body)
        }

        /// False once the closure was called, cancelled, or refused or dropped by a loop that has ended. Thread-safe.
        public var isValid: Bool { !body.isEmpty }

        /// Withdraws the request. The closure is not called, unless a call has begun. Thread-safe.
        public func cancel() {
            port?.queue.withdraw(self)
            _ = body.take()
        }

        /// There is room, or the port is invalid. Called outside every lock.
        func notify() { /* DOES CALLOUT */
            // A loop that refuses the closure, or ends before it can call it, releases it; then the request is over, too.
            let end = ReleaseNotifier { [self] in _ = body.take() }
            let call: @Sendable () -> Void = { [self] in withExtendedLifetime(end) { _ = body.take()?() } }
            _ = loop.enqueueClosure(.perform, modes, call, CreationSite(#fileID, #line))
        }
    }
}
