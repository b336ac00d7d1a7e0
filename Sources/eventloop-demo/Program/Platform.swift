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
private let numberOfFiles = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
#else
private let numberOfFiles = RLIMIT_NOFILE
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

    /// How many descriptors the process may have. At first use, raises the limit: each connection takes a descriptor, and the usual limit
    /// of 1,024 is lower than what the process may ask for.
    static let descriptorLimit: Int = {
        var limit = rlimit()
        guard getrlimit(numberOfFiles, &limit) == 0 else { return 1_024 }
        // More than this is of no use here, and some systems refuse an unlimited number.
        let wanted = min(limit.rlim_max, max(limit.rlim_cur, 65_536))
        let before = limit.rlim_cur
        limit.rlim_cur = wanted
        return Int(clamping: setrlimit(numberOfFiles, &limit) == 0 ? wanted : before)
    }()

    static var id: Int32 { getpid() }
    static var userID: UInt32 { geteuid() }

    static func environment(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

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

/// A clock of the processor time of one thread. Zero stands for none.
enum ProcessorClock {
    #if canImport(Darwin)
    // Darwin has no pthread_getcpuclockid.
    static var ofThisThread: UInt64 { 0 }
    static func read(_ clock: UInt64) -> Duration? { nil }
    #else
    static var ofThisThread: UInt64 {
        var clock = clockid_t()
        guard pthread_getcpuclockid(pthread_self(), &clock) == 0 else { return 0 }
        return UInt64(UInt32(bitPattern: clock))
    }

    static func read(_ clock: UInt64) -> Duration? {
        var time = timespec()
        guard clock != 0, clock_gettime(clockid_t(bitPattern: UInt32(truncatingIfNeeded: clock)), &time) == 0 else { return nil }
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
    #endif
}
