// Binding and connecting a socket.

internal import CPlatform
internal import EventLoop

extension CFSocket {
    func bind(_ address: CFData?) -> CFSocketError {
        guard let address, address.count > 0, let native, SocketCalls.bind(native.descriptor, address) else { return .error }
        changed()
        return .success
    }

    func connect(_ address: CFData, _ timeout: CFTimeInterval) -> CFSocketError {
        guard address.count > 0, let native else { return .error }
        // A thread that ended in here would leave the socket without its watch, or in the other blocking mode. So nothing in here calls out.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        if timeout < 0 {
            defer { changed() }
            return native.connect(address, timeout)
        }
        // The loops do not watch meanwhile: this thread takes the outcome.
        state.withLock { $0.waitingConnects.begin() }
        watch()
        let result = native.connect(address, timeout)
        state.withLock { $0.waitingConnects.end() }
        changed()
        return result
    }

    /// Whether a thread is in `connect` and waits for the outcome.
    package var testsOnlyIsConnecting: Bool { native?.isConnecting ?? false }

    /// A stream that was unconnected may connect or listen now.
    private func changed() {
        state.withLock { $0.checkAgain(kind) }
        watch()
    }

    func copyAddress() -> CFData? {
        state.withLock { state in
            if let native = state.native, let address = SocketCalls.address(native.descriptor) { state.address = address }
            return state.address
        }
    }

    func copyPeerAddress() -> CFData? {
        state.withLock { state in
            if let native = state.native, let address = SocketCalls.peerAddress(native.descriptor) { state.peerAddress = address }
            return state.peerAddress
        }
    }
}
