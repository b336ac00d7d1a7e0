// Helpers of the tests of signals. A signal's action belongs to the process, so each test uses its own and can run beside others.

import EventLoop
import EventLoopTestSupport
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A signal that no other test uses. On Linux it is a real-time signal: the kernel queues those, so all that are sent arrive. The small
/// worlds use the numbers 0, 18, 19, 23 and those from 27 on.
func testSignal(_ number: Int32) -> Int32 {
    #if os(Linux)
    // The C library's first real-time signal, and the ones after it.
    return __libc_current_sigrtmin() + number
    #else
    return [SIGUSR2, SIGINFO, SIGIO, SIGTTOU, SIGTTIN, SIGVTALRM, SIGPROF, SIGXFSZ][Int(number) % 8]
    #endif
}

/// Unblocks signals on this thread. The threads that run tests block signals, and new threads inherit that mask.
func letThrough(_ signals: Int32...) {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    precondition(pthread_sigmask(SIG_UNBLOCK, &set, nil) == 0)
}

/// Sends a signal to the calling thread, which must not block it. The signal's handler has returned when this function returns.
func raiseHere(_ signal: Int32, times: Int = 1) {
    for _ in 0..<times { precondition(pthread_kill(pthread_self(), signal) == 0) }
}

/// A counter that a C signal handler may increment, because it takes no lock.
final class SignalCounter: Sendable {
    private let count = Atomic(0)
    var value: Int { count.load(ordering: .sequentiallyConsistent) }
    func increment() { count.add(1, ordering: .sequentiallyConsistent) }
}

/// The number of calls of each handler below, by signal.
let plainCalls = (0..<128).map { _ in SignalCounter() }
let detailedCalls = (0..<128).map { _ in SignalCounter() }

func plainHandler(_ signal: Int32) { plainCalls[Int(signal)].increment() }

func detailedHandler(_ signal: Int32, _ info: UnsafeMutablePointer<siginfo_t>?, _: UnsafeMutableRawPointer?) {
    if info?.pointee.si_signo == signal { detailedCalls[Int(signal)].increment() }
}

enum Installed: Sendable {
    case standard, ignored
    case plain(@convention(c) (Int32) -> Void)
    case detailed(@convention(c) (Int32, UnsafeMutablePointer<siginfo_t>?, UnsafeMutableRawPointer?) -> Void)
}

/// Installs a handler and returns the previous action.
@discardableResult
func install(_ installed: Installed, for signal: Int32, flags: Int32 = 0) -> sigaction {
    _ = (plainCalls, detailedCalls)  // initialized here, not in the handler
    var action = sigaction()
    var before = sigaction()
    #if canImport(Glibc)
    switch installed {
    case .standard: action.__sigaction_handler.sa_handler = SIG_DFL
    case .ignored: action.__sigaction_handler.sa_handler = SIG_IGN
    case .plain(let handler): action.__sigaction_handler.sa_handler = handler
    case .detailed(let handler): action.__sigaction_handler.sa_sigaction = handler
    }
    #else
    switch installed {
    case .standard: action.__sigaction_u.__sa_handler = SIG_DFL
    case .ignored: action.__sigaction_u.__sa_handler = SIG_IGN
    case .plain(let handler): action.__sigaction_u.__sa_handler = handler
    case .detailed(let handler): action.__sigaction_u.__sa_sigaction = handler
    }
    #endif
    var isDetailed = false
    if case .detailed = installed { isDetailed = true }
    action.sa_flags = flags | (isDetailed ? SA_SIGINFO : 0)
    precondition(sigaction(signal, &action, &before) == 0, "sigaction: errno \(errno)")
    return before
}

/// The address of the installed handler, for comparison.
func installedHandler(of signal: Int32) -> UInt {
    var action = sigaction()
    precondition(sigaction(signal, nil, &action) == 0)
    return withUnsafeBytes(of: &action) { bytes in
        // The union of the two kinds of handlers comes first, on Linux as on Darwin.
        bytes.loadUnaligned(as: UInt.self)
    }
}

func putBack(_ action: sigaction, for signal: Int32) {
    var action = action
    precondition(sigaction(signal, &action, nil) == 0)
}

/// A source that adds up the counts it receives.
func countingSource(_ signal: Int32, _ count: Box<Int>) throws -> RunLoop.SignalSource {
    try RunLoop.SignalSource(signal: signal) { _, arrived in count.change { $0 += arrived } }
}
