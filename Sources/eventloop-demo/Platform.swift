// The differences between systems, and the demo's settings of the process.

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

    /// A client that disconnects must not end the server: libevent writes with writev(2), which has no
    /// MSG_NOSIGNAL. It also lets `eventloop-demo | head` end normally.
    static func ignoreBrokenPipes() {
        _ = signal(SIGPIPE, SIG_IGN)
    }

    /// Ctrl-C and SIGTERM end the main loop's run; the demo then stops as usual.
    ///
    /// A signal handler may call `stop`, which takes no lock and allocates nothing. The stop is sticky, so that
    /// a signal between two runs is kept for the next run. With SA_RESETHAND, a second Ctrl-C ends the process
    /// at once, in case the normal end hangs.
    static func stopMainLoopOnInterrupt() {
        _ = RunLoop.main  // made now, because a signal handler may not make it
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
