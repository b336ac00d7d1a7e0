// Which host to notify when accepting fails, because the process has no descriptors left.
//
// libevent calls a listener's error callback with the argument of the accept callback. evhttp has set both to its own, so the callback gets
// the evhttp, and finds the host here. Remove this when evhttp has an error callback of its own.

import CLibevent

enum ListenerShortage {
    private static let hosts = Locked<[UInt: @Sendable () -> Void]>([:])

    /// `pause` is called on the thread of the listener's loop.
    static func watch(_ listener: OpaquePointer?, of http: OpaquePointer, pause: @escaping @Sendable () -> Void) {
        hosts.withLock { $0[UInt(bitPattern: http)] = pause }
        evconnlistener_set_error_cb(listener, acceptFailed)
    }

    static func forget(_ http: OpaquePointer) {
        _ = hosts.withLock { $0.removeValue(forKey: UInt(bitPattern: http)) }
    }

    fileprivate static func notify(_ http: UnsafeMutableRawPointer) {
        let pause = hosts.withLock { $0[UInt(bitPattern: http)] }
        pause?()
    }
}

private func acceptFailed(_ listener: OpaquePointer?, _ http: UnsafeMutableRawPointer?) {
    if let http { ListenerShortage.notify(http) }
}
