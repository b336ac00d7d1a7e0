// Lifecycle of the closure: retained by the thread from `pthread_create` until the closure returns.

import EventLoopLibC

package enum NativeThread {
    private typealias Start = HandlerBox<@Sendable () -> Void>

    /// Runs `body` on a new, detached thread. Returns zero or an errno. `stackSize` is in bytes, rounded up to pages; nil is the system's default.
    package static func start(stackSize: Int? = nil, _ body: @escaping @Sendable () -> Void) -> Int32 {
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        if let stackSize {
            let page = sysconf(Int32(_SC_PAGESIZE))
            // pthread_attr_setstacksize(3): "On some systems" EINVAL, "if stacksize is not a multiple of the system page size".
            guard stackSize > 0, stackSize <= Int.max - page else { return EINVAL }
            let code = pthread_attr_setstacksize(&attributes, (stackSize + page - 1) / page * page)
            if code != 0 { return code }
        }
        let context = Unmanaged.passRetained(Start(body)).toOpaque()
        var handle = pthread_self()  // pthread_create(3) replaces it; its type differs between systems
        let code = pthread_create(
            &handle, &attributes,
            { argument in
                let context: UnsafeMutableRawPointer? = argument
                Unmanaged<Start>.fromOpaque(context!).takeRetainedValue().handlers()  // it is passed below
                return nil
            }, context)
        if code != 0 { Unmanaged<Start>.fromOpaque(context).release() }
        return code
    }
}

/// Signals are for the threads of the program; the library's must not be where its handlers run. Not those by which a thread reports a fault of its
/// own: if one is blocked, the kernel ends the process without the program's crash handler.
package func blockSignals() {
    var blocked = sigset_t()
    sigfillset(&blocked)
    for fault in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS] { sigdelset(&blocked, fault) }
    pthread_sigmask(SIG_SETMASK, &blocked, nil)
}
