// CFSocket.h: the object. CFSocket+Serving.swift calls back, CFSocket+Source.swift connects it with loops.
//
// Lifecycle of a CFSocket: its run loop source retains it, and it refers to the source weakly, so one whose source nobody uses is released.
// It owns a *watcher*, a descriptor source that is in the same modes as the run loop source. `info` is released when the socket is invalid
// and no callback is in progress. NativeSocket.swift says when the descriptor is closed.

internal import EventLoop

/// Calls back when a socket can be read or written to, when it has accepted or received something, or when it is connected. Thread-safe.
/// See `CFSocket`.
// If this is ambiguous: remove the import of CoreFoundation.
public final class CFSocket: Sendable {
    struct State {
        /// Nil once the socket is invalid, as `context`.
        var native: NativeSocket?
        var context: RetainedContext<CFSocketContext>?
        /// The flags of CFSocketSetSocketFlags.
        var flags: CFOptionFlags
        /// The types that CFSocketDisableCallBacks disabled. Not an array literal: for one the runtime takes a lock, which a child
        /// must not do.
        var disabled = CFSocketCallBackType(rawValue: 0)

        // Which callbacks come when the socket is ready. A callback that comes disarms itself.
        /// Read, accept or data: the socket's one of them.
        var isReadArmed = false
        var isConnectArmed = false
        var isWriteArmed = false
        /// Callbacks in progress after which something has to follow: read, write, and the data callback at the end.
        var unreturned = CFSocketCallBackType(rawValue: 0)

        /// No connect callback comes any more: it has come, or the socket does not connect.
        var isConnected: Bool
        var waitingConnects = WaitingConnects()
        /// The kernel reports a hang-up of a stream that was never connected. So such a socket is not watched.
        var isUnconnected = false
        /// Whether `isUnconnected` need not be checked again.
        var isSettled: Bool
        /// Counts the calls after which `isUnconnected` has to be checked again.
        var changes: UInt = 0
        /// The last attempt in the background failed. One read callback follows, and one each time that they are enabled again.
        var hasFailed = false
        /// While nothing can be accepted, because there are no descriptors left: a timer in each loop of the source, any of which ends the pause.
        var pauses: [RunLoop.Timer] = []
        var nextPause = CFSocket.shortestPause
        /// How often somebody has ended the pause, whether or not there was one.
        var pauseEnds: UInt = 0

        /// How many modes the source is in.
        var places = 0
        weak var source: RunLoop.CustomSource?
        var watcher: RunLoop.DescriptorSource?

        /// As they were last read: they outlast the connection, and the own address outlasts the socket.
        var address: CFData?
        var peerAddress: CFData?

        /// What the loops watch for.
        var wanted: RunLoop.DescriptorSource.Events {
            if isUnconnected || !waitingConnects.isEmpty || !pauses.isEmpty { return [] }
            var wanted: RunLoop.DescriptorSource.Events = []
            if isReadArmed { wanted.insert(.read) }
            if isWriteArmed || isConnectArmed { wanted.insert(.write) }
            return wanted
        }

        /// Something has changed that can end the silence of an unconnected socket.
        mutating func checkAgain(_ kind: NativeSocket.Kind) {
            changes &+= 1
            (isUnconnected, isSettled, hasFailed) = (false, kind != .connection, false)
        }

        /// Whether the last attempt has failed and nothing has followed it. The program may have connected the native socket by itself.
        mutating func isAfterFailure() -> Bool {
            if hasFailed, let native, !SocketCalls.hasHungUp(native.descriptor) { hasFailed = false }
            return hasFailed
        }
    }

    /// The threads that are in CFSocketConnectToAddress and wait for an outcome. They take the socket's error.
    struct WaitingConnects {
        private var count = 0
        /// A child of fork has none of its parent's threads.
        private var mark = ProcessMark()

        var isEmpty: Bool { count == 0 || !mark.isOurs }

        mutating func begin() {
            if !mark.isOurs { self = Self() }
            count += 1
        }

        mutating func end() { count -= 1 }
    }

    let types: CFSocketCallBackType
    let kind: NativeSocket.Kind
    let callout: CFSocketCallBack?
    let state: LoopLock<State>

    /// Without a native socket, the object is invalid.
    init(
        _ native: NativeSocket?, _ types: CFOptionFlags, _ callout: CFSocketCallBack?, _ context: RetainedContext<CFSocketContext>
    ) {
        self.types = CFSocketCallBackType(rawValue: types & 15)
        self.callout = callout
        kind = native?.kind ?? .other
        // As in Core Foundation, which keeps eight bits.
        let flags = types & 0xFF & ~(CFSocketCallBackType.connectCallBack.rawValue | CFSocketCallBackType.writeCallBack.rawValue)
        let connects = kind == .connection && self.types.readType != .acceptCallBack
        state = LoopLock(
            State(
                native: native, context: native == nil ? nil : context, flags: flags | kCFSocketCloseOnInvalidate,
                isConnected: !connects, isSettled: kind != .connection))
    }

    deinit { /* DOES CALLOUT */ invalidate() }

    var isValid: Bool { state.withLock { $0.native != nil } }

    var native: NativeSocket? { state.withLock { $0.native } }

    /// Ends the socket, its source and its watcher. `closes`: whether its flag to close is followed. No-op the second time.
    func invalidate(closes: Bool = true) { /* DOES CALLOUT */
        // Released outside the lock: a context's `release` is the user's.
        let ended = state.withLockIfOwn { state -> State? in
            guard state.native != nil else { return nil }
            let ended = state
            (state.native, state.context, state.watcher, state.pauses) = (nil, nil, nil, [])
            state.source = nil
            (state.isReadArmed, state.isConnectArmed, state.isWriteArmed, state.peerAddress) = (false, false, false, nil)
            return ended
        }
        guard let ended = ended ?? nil, let native = ended.native else { return }
        SocketTable.remove(self, native.descriptor)
        if closes && ended.flags & kCFSocketCloseOnInvalidate != 0 { native.closeAtEnd() }
        // First what other loops watch: each of these calls out, which may end the thread.
        ended.watcher?.invalidate()
        ended.source?.invalidate()
        for timer in ended.pauses { timer.invalidate() }
    }

    /// Has the loops watch for what is armed. Under the lock, so that the last change wins; so it does not call out, and what fails is invalid
    /// after the loop's next safe point.
    func watch() { state.withLock { if let watcher = $0.watcher { watcher.setEventsWithoutCallout($0.wanted) } } }

    // MARK: Which callbacks come

    /// Enables callbacks, also those that come by themselves. Nothing while the source is in no mode, as in Core Foundation.
    func enable(_ asked: CFSocketCallBackType) { /* DOES CALLOUT */
        state.withLock { if $0.places > 0 { arm(asked, &$0) } }
        endPause()
    }

    func disable(_ asked: CFSocketCallBackType) {
        state.withLock { state in
            guard state.native != nil, state.places > 0 else { return }
            let asked = asked.intersection(types)
            state.disabled.formUnion(asked)
            if !asked.isDisjoint(with: types.readType) { state.isReadArmed = false }
            if asked.contains(.connectCallBack) { state.isConnectArmed = false }
            if asked.contains(.writeCallBack) { state.isWriteArmed = false }
        }
        watch()
    }

    func arm(_ asked: CFSocketCallBackType, _ state: inout State) {
        guard state.native != nil else { return }
        let asked = asked.intersection(types)
        state.disabled.subtract(asked)
        if !asked.isDisjoint(with: types.readType) { state.isReadArmed = true }
        if asked.contains(.connectCallBack) && !state.isConnected { state.isConnectArmed = true }
        if asked.contains(.writeCallBack) { state.isWriteArmed = true }
        // A failure stays: the read callback that comes now is the last one again.
        let hasFailed = state.isAfterFailure()
        state.checkAgain(kind)
        state.hasFailed = hasFailed
    }

    /// After the callback of a type: arms it again if its flag says so.
    func rearm(_ type: CFSocketCallBackType, _ state: inout State) {
        guard state.native != nil, state.places > 0, state.flags & type.rawValue != 0, state.disabled.isDisjoint(with: type) else { return }
        if type == .writeCallBack { state.isWriteArmed = true } else { state.isReadArmed = true }
    }
}

extension CFSocketCallBackType {
    /// Read, accept, data, or none of them.
    var readType: CFSocketCallBackType { intersection(.dataCallBack) }
}
