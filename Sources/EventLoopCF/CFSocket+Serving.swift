// What a ready socket calls: in this order the connect callback, one of read, accept and data, and the write callback.
//
// A callback may do anything, and other threads too. So each part takes what it needs from the state under the lock, and the next part
// begins from there again. A callback that is in progress has disarmed itself, so a nested run does not call it again; data and accept
// callbacks stay armed if they come by themselves, because each has something of its own to deliver.

internal import EventLoop

extension CFSocket {
    static var shortestPause: Duration { .milliseconds(5) }
    private static var longestPause: Duration { .seconds(1) }

    /// On the thread of a loop that runs the source, which has claimed the watcher.
    func serve(_ ready: RunLoop.DescriptorSource.Events) { /* DOES CALLOUT */
        let ready = confirmed(ready)
        if ready.contains(.write) { deliverOutcome() }
        if ready.contains(.read) {
            switch types.readType {
            case .readCallBack: deliverReadiness()
            case .acceptCallBack: deliverConnection()
            case .dataCallBack: deliverData()
            default: break
            }
        }
        if ready.contains(.write) { deliverRoom() }
        // Of a callback that disarmed itself and armed itself again, the loops see nothing.
        watch()
    }

    private func call(
        _ type: CFSocketCallBackType, _ address: CFData?, _ data: UnsafeRawPointer?, _ context: RetainedContext<CFSocketContext>
    ) { /* DOES CALLOUT */
        callout?(self, type, address, data, context.info)
    }

    /// What of `ready` is to be called back for. A stream that was never connected is silent until somebody connects it. And the kernel may have
    /// reported its hang-up before an attempt that has begun since. So the kernel is asked again, until the stream is ready for something.
    private func confirmed(_ ready: RunLoop.DescriptorSource.Events) -> RunLoop.DescriptorSource.Events {
        let unsettled = state.withLock { state -> (NativeSocket, UInt)? in
            guard let native = state.native, !state.isSettled else { return nil }
            return (native, state.changes)
        }
        guard let (native, changes) = unsettled else { return ready }
        let present = native.readiness
        return state.withLock { state -> RunLoop.DescriptorSource.Events in
            // If another thread has begun to connect meanwhile, the kernel was asked too early.
            guard state.changes == changes else { return [] }
            (state.isUnconnected, state.isSettled) = (present == nil, present.map { !$0.isEmpty } ?? false)
            return ready.intersection(present ?? [])
        }
    }

    /// The end of a connection attempt.
    private func deliverOutcome() { /* DOES CALLOUT */
        let outcome = state.withLock { state -> (Int32, RetainedContext<CFSocketContext>)? in
            guard let native = state.native, let context = state.context, state.isConnectArmed, state.waitingConnects.isEmpty else {
                return nil
            }
            let leavesError = state.flags & kCFSocketLeaveErrors != 0
            let error = leavesError ? 0 : SocketCalls.takeError(native.descriptor)
            (state.isConnected, state.isConnectArmed) = (true, false)
            if error != 0 { (state.hasFailed, state.isWriteArmed) = (true, false) }
            // The program takes the error, and the hang-up stays. One with a peer is no failure: the peer of a Unix socket has closed already.
            if leavesError {
                state.hasFailed = SocketCalls.hasHungUp(native.descriptor) && SocketCalls.peerAddress(native.descriptor) == nil
            }
            return (error, context)
        }
        guard let (error, context) = outcome else { return }
        if error == 0 { return call(.connectCallBack, nil, nil, context) }
        withUnsafePointer(to: error) { call(.connectCallBack, nil, $0, context) }
    }

    private func deliverReadiness() { /* DOES CALLOUT */
        let context = state.withLock { state -> RetainedContext<CFSocketContext>? in
            guard state.isReadArmed, state.waitingConnects.isEmpty else { return nil }
            state.isReadArmed = false
            state.unreturned.insert(.readCallBack)
            return state.context
        }
        guard let context else { return }
        call(.readCallBack, nil, nil, context)
        didCall(.readCallBack)
    }

    /// What follows a read or a write callback.
    private func didCall(_ type: CFSocketCallBackType) {
        state.withLock { state in
            state.unreturned.remove(type)
            rearm(type, &state)
            // The end of a failed attempt could be read forever.
            if type == .readCallBack && state.isAfterFailure() { state.isUnconnected = true }
        }
    }

    /// A loop's thread has ended in callbacks. Other loops may have the source, too.
    func endAbandonedCalls() { /* DOES CALLOUT */
        let unreturned = state.withLock { $0.unreturned }
        if unreturned.readType == .dataCallBack { return invalidate() }
        if unreturned.readType == .readCallBack { didCall(.readCallBack) }
        if unreturned.contains(.writeCallBack) { didCall(.writeCallBack) }
        watch()
    }

    private func deliverData() { /* DOES CALLOUT */
        // Received under the lock: a thread that begins to connect and waits takes the error of its attempt.
        let received = state.withLock { state -> (CFData, CFData, RetainedContext<CFSocketContext>, Bool)? in
            guard state.isReadArmed, state.waitingConnects.isEmpty, let native = state.native, let context = state.context,
                case .data(let data, let sender) = native.receive()
            else { return nil }
            let isEnd = data.count == 0 && native.kind != .messages
            if isEnd || state.flags & CFSocketCallBackType.dataCallBack.rawValue == 0 { state.isReadArmed = false }
            if isEnd { state.unreturned.insert(.dataCallBack) }
            if sender == nil && state.peerAddress == nil { state.peerAddress = SocketCalls.peerAddress(native.descriptor) }
            return (data, sender ?? state.peerAddress ?? .empty, context, isEnd)
        }
        guard let (data, address, context, isEnd) = received else { return }
        withExtendedLifetime(data) { call(.dataCallBack, address, Unmanaged.passUnretained(data).toOpaque(), context) }
        if isEnd { return invalidate() }
        state.withLock { rearm(.dataCallBack, &$0) }
    }

    private func deliverConnection() { /* DOES CALLOUT */
        guard let native = state.withLock({ $0.isReadArmed ? $0.native : nil }) else { return }
        switch native.accept() {
        case .nothing: return
        case .exhausted: return pauseAccepting()
        case .notListening: state.withLock { $0.isReadArmed = false }
        case .connection(let connection, let address):
            let context = state.withLock { state -> RetainedContext<CFSocketContext>? in
                guard state.native === native else { return nil }
                if state.flags & CFSocketCallBackType.acceptCallBack.rawValue == 0 { state.isReadArmed = false }
                state.nextPause = Self.shortestPause
                return state.context
            }
            // Nobody gets it without a callout.
            guard let context, callout != nil else { return SocketCalls.close(connection) }
            withUnsafePointer(to: connection) { call(.acceptCallBack, address, $0, context) }
            state.withLock { rearm(.acceptCallBack, &$0) }
        }
    }

    /// The socket can be written to.
    private func deliverRoom() { /* DOES CALLOUT */
        let context = state.withLock { state -> RetainedContext<CFSocketContext>? in
            guard state.isWriteArmed, state.waitingConnects.isEmpty else { return nil }
            state.isWriteArmed = false
            state.unreturned.insert(.writeCallBack)
            return state.context
        }
        guard let context else { return }
        call(.writeCallBack, nil, nil, context)
        didCall(.writeCallBack)
    }

    // MARK: Out of descriptors

    /// The listener stays readable but cannot accept, so the loop would spin if it watched the listener.
    private func pauseAccepting() { /* DOES CALLOUT */
        guard let watcher = state.withLock({ $0.watcher }) else { return }
        let (length, ends) = state.withLock { ($0.nextPause, $0.pauseEnds) }
        // In every loop: one that has stopped to run does not end the pause for the others.
        let timers = watcher.loopsAndModes.map { loop, modes in
            let timer = RunLoop.Timer(fireAt: loop.clock.now.advanced(by: length), label: "pause of a CFSocket") { [weak self] _ in
                self?.endPause()
            }
            for mode in modes { loop.add(timer, forMode: mode) }
            return timer
        }
        let unused = state.withLock { state -> [RunLoop.Timer] in
            // Another thread may have removed the source, or ended the pause otherwise, before the pause was there.
            guard state.native != nil, state.pauseEnds == ends else { return timers }
            defer { (state.pauses, state.nextPause) = (timers, min(length * 2, Self.longestPause)) }
            return state.pauses
        }
        for timer in unused { timer.invalidate() }
    }

    /// Has the loops watch for what is armed, without a pause.
    func endPause() { /* DOES CALLOUT */
        let timers = state.withLock { state in
            state.pauseEnds &+= 1
            defer { state.pauses = [] }
            return state.pauses
        }
        // Before the callouts, any of which may end the thread: other loops may have the source, too.
        watch()
        for timer in timers { timer.invalidate() }
    }
}
