// Closing what others have sent: on threads that may block.
//
// Lifecycle: made when the process first has something to close here, and never freed; its threads are started when there is something to close,
// and end when there has been nothing for a while. In a child of fork there is a new one: what was queued in the parent, the parent closes.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// The process's threads that close descriptors which came from other processes.
///
/// close(2) may take as long as the sender of a descriptor likes: a socket with SO_LINGER waits for its peer, a file on NFS or FUSE for its server,
/// and a socket with unread messages closes the descriptors in them. No thread that serves anybody may wait for that. Which descriptors close at
/// once cannot be found out in general, because asking a file may block too.
final class DescriptorCloser: @unchecked Sendable {
    // SAFETY: a constant, a lock and an atomic.

    /// So many closes may block at the same time before others wait for them.
    static let threadLimit = 8
    private static let idleTime = Duration.seconds(10)

    private struct State: Sendable {
        /// What waits, from `next` on.
        var queue: [Int32] = []
        var next = 0
        var threads = 0
        /// Threads that have nothing to do, each at its gate.
        var idle: [Gate] = []
    }

    private let forkEpoch: Int32
    private let state = Guarded(State())
    private let count = Atomic<Int>(0)

    // Not a lock: a child of fork might find it locked.
    private static let current = Atomic<UInt>(0)

    /// Makes the word, which Swift would otherwise make at its first use.
    static func prepare() { _ = current.load(ordering: .relaxed) }

    private init(forkEpoch: Int32) { self.forkEpoch = forkEpoch }

    /// The one of this process.
    private static var shared: DescriptorCloser {
        let epoch = ForkEpoch.current
        while true {  // ends: with the one that is there, or with a new one
            let bits = current.load(ordering: .acquiring)
            if let present = object(bits), present.forkEpoch == epoch { return present }
            let made = Unmanaged.passRetained(DescriptorCloser(forkEpoch: epoch))
            let (isOurs, _) = current.compareExchange(
                expected: bits, desired: UInt(bitPattern: made.toOpaque()), ordering: .acquiringAndReleasing)
            if !isOurs { made.release() }
        }
    }

    private static func object(_ bits: UInt) -> DescriptorCloser? {
        UnsafeRawPointer(bitPattern: bits).map { Unmanaged<DescriptorCloser>.fromOpaque($0).takeUnretainedValue() }
    }

    /// How many descriptors wait to be closed, or are being closed.
    static var pending: Int {
        guard let present = object(current.load(ordering: .acquiring)), present.forkEpoch == ForkEpoch.current else { return 0 }
        return present.count.load(ordering: .relaxed)
    }

    /// Closes a descriptor that another process has sent. Does not block. Thread-safe.
    static func close(_ descriptor: Int32) {
        if cplatform_closes_at_once(descriptor) { closeNow(descriptor) } else { shared.enqueue(descriptor) }
    }

    /// Closes a connection's socket after its shutdown: nothing can come any more, and if nothing has been left unread there is nothing in it whose
    /// close could block. Does not block. Thread-safe.
    static func closeSocket(_ descriptor: Int32) {
        if cplatform_has_unread(descriptor) { shared.enqueue(descriptor) } else { closeNow(descriptor) }
    }

    /// Shuts a connection down for both ends, and closes it as above.
    static func end(_ descriptor: Int32) {
        cplatform_shutdown(descriptor)
        closeSocket(descriptor)
    }

    private func enqueue(_ descriptor: Int32) {
        count.add(1, ordering: .relaxed)
        let (gate, mustStart) = state.withLock { state -> (Gate?, Bool) in
            state.queue.append(descriptor)
            if let gate = state.idle.popLast() { return (gate, false) }
            if state.threads == Self.threadLimit { return (nil, false) }
            state.threads += 1
            return (nil, true)
        }
        gate?.open()
        if !mustStart { return }
        // Without a thread it waits for the next that is to be closed: to block here would be worse.
        if NativeThread.start({ [self] in live() }) != 0 { state.withLock { $0.threads -= 1 } }
    }

    private func live() {
        blockSignals()
        cplatform_name_this_thread("closing")
        while true {  // ends: there has been nothing to do for a while
            let gate = Gate()
            let descriptor = state.withLock { state -> Int32? in
                if state.next < state.queue.count {
                    defer { Self.advance(&state) }
                    return state.queue[state.next]
                }
                state.idle.append(gate)
                return nil
            }
            if let descriptor {
                closeNow(descriptor)
                count.subtract(1, ordering: .relaxed)
            } else if !gate.wait(until: .now.advanced(by: Self.idleTime)) {
                let isOver = state.withLock { state -> Bool in
                    // Taken off the list, it has been given something to do.
                    guard let place = state.idle.firstIndex(where: { $0 === gate }) else { return false }
                    state.idle.remove(at: place)
                    state.threads -= 1
                    return true
                }
                if isOver { return }
            }
        }
    }

    private static func advance(_ state: inout State) {
        state.next += 1
        if state.next == state.queue.count {
            (state.queue, state.next) = ([], 0)
        } else if state.next >= 64 && state.next > state.queue.count / 2 {
            state.queue.removeFirst(state.next)
            state.next = 0
        }
    }
}

private func closeNow(_ descriptor: Int32) { close(descriptor) }

/// Signals are for the threads of the program; the library's must not be where its handlers run.
func blockSignals() {
    var all = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, nil)
}
