// `event_base_loop`, made of runs of the thread's run loop in a mode that waits on the caller's base.
//
// Lifecycle of the poller: made on the base for one call, and freed before the call returns, so that the test finds its base without any
// event of ours and may free it.

import CLibevent
import CLibeventRegress
import Glibc
import Synchronization

@testable import EventLoop

/// How `event_base_loop`'s flags and codes are expressed in runs:
///
/// | libevent | run loop |
/// |---|---|
/// | no flag | runs that return after a source was handled, until the mode is empty |
/// | `EVLOOP_ONCE` | one such run |
/// | `EVLOOP_NONBLOCK` | runs with a limit of zero, as long as they handle something or leave callbacks in libevent's queues |
/// | `EVLOOP_NO_EXIT_ON_EMPTY` | `keepAlive` |
/// | returns 1 | `.finished` |
/// | `event_base_loopexit`, `event_base_loopbreak` | asked for after each run |
@_cdecl("eventloop_base_loop")
public func runBase(_ base: OpaquePointer?, _ flags: Int32) -> Int32 {
    // A base that is being run: libevent refuses, with a message that a test waits for.
    guard let base, running.withLock({ $0.insert(UInt(bitPattern: base)).inserted }) else { return event_base_loop(base, flags) }
    defer { _ = running.withLock { $0.remove(UInt(bitPattern: base)) } }
    eventloop_set_broken(base, false)
    let (loop, mode, poller) = spares.give { prepareRun(base) }
    // Not held here: it must leave the base before this function returns.
    let state = loop.shared.withLock { $0.modes.makeLocked(mode) }
    state.owned.poller = poller.takeRetainedValue()
    defer {
        state.owned.poller = nil
        spares.take()
    }
    let token = flags & EVLOOP_NO_EXIT_ON_EMPTY != 0 ? loop.keepAlive(forMode: mode) : nil
    defer { token?.cancel() }
    return run(loop, mode, base, flags)
}

private func prepareRun(_ base: OpaquePointer) -> (RunLoop, RunLoop.Mode, Unmanaged<Poller>) {
    let loop = RunLoop.current
    let mode = RunLoop.Mode("libevent, depth \(loop.runDepth)")
    do {
        return (loop, mode, .passRetained(try Poller(borrowing: base, waking: loop.waker.channel)))
    } catch {
        fatalError("a poller on a base of libevent's tests: \(error)")
    }
}

/// The addresses of the bases that are being run, by any thread.
private let running = Mutex<Set<UInt>>([])

@_cdecl("eventloop_prepare")
public func prepare() { spares.take() }

/// Descriptors for the thread's loop, which is not made before the first run because a test forks in between, and for a poller's deadline.
private let spares = SpareDescriptors(2)

private final class SpareDescriptors: Sendable {
    private let count: Int
    private let descriptors = Mutex<[Int32]>([])

    init(_ count: Int) { self.count = count }

    func take() {
        descriptors.withLock { held in
            while held.count < count {  // ends: at the limit of descriptors at the latest
                let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
                if descriptor < 0 { return }
                held.append(descriptor)
            }
        }
    }

    /// Frees the spares for `body`, and takes no lower numbers: a test may have closed a descriptor that its base still watches.
    func give<Result>(_ body: () -> Result) -> Result {
        let held = descriptors.withLock { held in
            defer { held = [] }
            return held
        }
        var lower: [Int32] = []
        while let highest = held.max() {  // ends: the kernel gives the lowest free number
            let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
            if descriptor >= 0 { lower.append(descriptor) }
            if descriptor < 0 || descriptor > highest { break }
        }
        for descriptor in held { close(descriptor) }
        defer { for descriptor in lower { close(descriptor) } }
        return body()
    }
}

private func run(_ loop: RunLoop, _ mode: RunLoop.Mode, _ base: OpaquePointer, _ flags: Int32) -> Int32 {
    while true {  // ends as the test expects of event_base_loop
        let result =
            flags & EVLOOP_NONBLOCK != 0
            ? loop.run(mode: mode, for: .zero, returnAfterSourceHandled: true)
            : loop.run(mode: mode, until: .distantFuture, returnAfterSourceHandled: true)
        if eventloop_base_got_break(base) != 0 || event_base_got_exit(base) != 0 { return 0 }
        if result == .finished { return 1 }
        if flags & EVLOOP_ONCE != 0 { return 0 }
        // A limit of zero is the only one.
        if result == .timedOut && event_base_get_num_events(base, UInt32(EVENT_BASE_COUNT_ACTIVE)) == 0 { return 0 }
    }
}
