// What the tests of signals share. A signal's action belongs to the process, so each test has a number of its own, and they run beside others.

import EventLoop
import EventLoopTestSupport
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A signal that no other test uses. On Linux a real-time one: they are queued, so that what is sent is what arrives. The numbers 0, 18, 19, 23
/// and those from 27 on belong to the small worlds.
func testSignal(_ number: Int32) -> Int32 {
    #if os(Linux)
    // The C library's first one, and those behind it.
    return __libc_current_sigrtmin() + number
    #else
    return [SIGUSR2, SIGINFO, SIGIO, SIGTTOU, SIGTTIN, SIGVTALRM, SIGPROF, SIGXFSZ][Int(number) % 8]
    #endif
}

/// Lets a signal through to this thread: those that run tests block signals, and threads inherit that.
func letThrough(_ signals: Int32...) {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    precondition(pthread_sigmask(SIG_UNBLOCK, &set, nil) == 0)
}

/// Sends a signal to the calling thread, which lets it through: its handler has returned when this does.
func raiseHere(_ signal: Int32, times: Int = 1) {
    for _ in 0..<times { precondition(pthread_kill(pthread_self(), signal) == 0) }
}

/// A counter that a C handler may count up: it is reached without a lock.
final class SignalCounter: Sendable {
    private let count = Atomic(0)
    var value: Int { count.load(ordering: .sequentiallyConsistent) }
    func increment() { count.add(1, ordering: .sequentiallyConsistent) }
}

/// How often the handlers below were called, by signal.
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

/// Installs a handler, and says what was there.
@discardableResult
func install(_ installed: Installed, for signal: Int32, flags: Int32 = 0) -> sigaction {
    _ = (plainCalls, detailedCalls)  // made here, and not in the handler
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

/// The address of what is installed, to be compared.
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

/// A source that counts what it is told.
func countingSource(_ signal: Int32, _ count: Box<Int>) throws -> RunLoop.SignalSource {
    try RunLoop.SignalSource(signal: signal) { _, arrived in count.change { $0 += arrived } }
}
