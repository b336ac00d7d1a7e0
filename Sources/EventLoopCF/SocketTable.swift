// Which CFSocket a native socket has: CFSocketCreateWithNative returns it.
//
// The table does not retain the sockets. A socket leaves it when it is invalidated, before its descriptor is closed, so the number is free in
// the table before the kernel can use it again.

internal import CPlatform
internal import EventLoop

enum SocketTable {
    private final class Entry: @unchecked Sendable {
        // SAFETY: constants. The reference is a variable because `weak let` needs Swift 6.2.
        private(set) weak var socket: CFSocket?
        let id: ObjectIdentifier

        init(_ socket: CFSocket) {
            self.socket = socket
            id = ObjectIdentifier(socket)
        }
    }

    private static let sockets = LoopLock<[CFSocketNativeHandle: Entry]>([:])

    /// For `release(inChild:)`.
    private static let none: [CFSocketNativeHandle: Entry] = [:]

    /// The valid socket of a descriptor.
    static func socket(_ descriptor: CFSocketNativeHandle) -> CFSocket? {
        prepare()
        // A socket whose last other reference goes now is released here, and not under the lock, which its deinit takes.
        let socket = sockets.withLock { $0[descriptor]?.socket }
        return socket?.isValid == true ? socket : nil
    }

    /// Inserts `socket` unless the descriptor has a valid socket, which is returned then.
    static func insert(_ socket: CFSocket, _ descriptor: CFSocketNativeHandle) -> CFSocket? {
        prepare()
        // An invalid one leaves the lock, too: this may be its last reference, and its callout may hold objects of the program.
        let (earlier, isValid) = sockets.withLock { sockets in
            let earlier = sockets[descriptor]?.socket
            let isValid = earlier?.isValid == true
            if !isValid { sockets[descriptor] = Entry(socket) }
            return (earlier, isValid)
        }
        return isValid ? earlier : nil
    }

    /// Inserts `socket`, and returns the earlier socket of the descriptor.
    static func replace(with socket: CFSocket, _ descriptor: CFSocketNativeHandle) -> CFSocket? {
        prepare()
        return sockets.withLock { sockets in
            let earlier = sockets[descriptor]?.socket
            sockets[descriptor] = Entry(socket)
            return earlier
        }
    }

    static func remove(_ socket: CFSocket, _ descriptor: CFSocketNativeHandle) {
        sockets.withLockIfOwn { sockets in
            if sockets[descriptor]?.id == ObjectIdentifier(socket) { sockets[descriptor] = nil }
        }
    }

    // MARK: What the process shares

    /// Before the first use: see `LoopGlobals` of the core. The lock is a leaf: nothing but a socket's lock is taken under it.
    private static func prepare() {
        cplatform_hold_globals(Int32(CPLATFORM_GLOBALS_OF_SOCKETS), { SocketTable.hold() }, { SocketTable.release(inChild: $0) })
    }

    private static func hold() {
        _ = none.count
        _ = sockets.lockValue()
    }

    private static func release(inChild: Bool) {
        if inChild { sockets.lockedValue().initialize(to: none) }
        sockets.unlock()
    }
}
