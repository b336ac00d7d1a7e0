// What differs between the systems the demo builds on, and what it asks of the process itself.

import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

#if canImport(Glibc)
let streamSocket = Int32(SOCK_STREAM.rawValue)
let sendWithoutSignal = Int32(MSG_NOSIGNAL)
#elseif canImport(Musl)
let streamSocket = SOCK_STREAM
let sendWithoutSignal = MSG_NOSIGNAL
#else
let streamSocket = SOCK_STREAM
let sendWithoutSignal: Int32 = 0  // Process.ignoreBrokenPipes() covers it
#endif

enum Process {
    static func end(code: Int32) -> Never {
        exit(code)
    }

    /// A client that goes away must not end the server: libevent writes with writev(2), which has no
    /// MSG_NOSIGNAL. It also lets `eventloop-demo | head` end in order.
    static func ignoreBrokenPipes() {
        _ = signal(SIGPIPE, SIG_IGN)
    }

    /// Ctrl-C and SIGTERM end the main loop's run; what follows is the same ordered stop as without them.
    ///
    /// `stop` may be called from a signal handler: it takes no lock and allocates nothing. Sticky, so that
    /// a signal that arrives between two runs is kept for the next. SA_RESETHAND: a second Ctrl-C ends
    /// the process the hard way, should the ordered one hang.
    static func stopMainLoopOnInterrupt() {
        _ = RunLoop.main  // made now: making it is more than a signal handler may do
        var action = sigaction()
        #if canImport(Darwin)
        action.__sigaction_u.__sa_handler = { _ in RunLoop.main.stop(sticky: true) }
        #else
        action.__sigaction_handler.sa_handler = { _ in RunLoop.main.stop(sticky: true) }
        #endif
        action.sa_flags = Int32(bitPattern: UInt32(truncatingIfNeeded: SA_RESETHAND)) | SA_RESTART
        sigaction(SIGINT, &action, nil)
        sigaction(SIGTERM, &action, nil)
    }
}
