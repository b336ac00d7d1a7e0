// Which signals a thread blocks.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The ordinary signals that the calling thread blocks.
public func blockedSignals() -> Set<Int32> {
    var mask = sigset_t()
    pthread_sigmask(SIG_BLOCK, nil, &mask)
    var blocked: Set<Int32> = []
    for signal in Int32(1)..<32 where sigismember(&mask, signal) == 1 { blocked.insert(signal) }
    return blocked
}

/// The signals by which a thread reports a fault of its own. No thread of the library blocks them.
public let faultSignals: Set<Int32> = [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS]
