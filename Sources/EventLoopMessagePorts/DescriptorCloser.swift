// Closes descriptors that came from other processes, on threads that may block.
//
// Lifecycle: created with the first port of the process, and never freed. So is its first thread. Further threads start when there is something
// to close, and end after ten idle seconds. A child creates its own; descriptors that were queued in the parent are closed by the parent.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
import Synchronization

/// The threads that close descriptors from other processes.
///
/// close(2) may take as long as the sender of a descriptor likes: a socket with SO_LINGER waits for its peer, a file on NFS or FUSE for its
/// server, a pipe for a process that holds its lock while it sleeps in splice(2), and closing a socket closes the descriptors in its unread
/// messages. A thread that serves anybody must not wait for that. There is no way to find out which descriptors close at once, because
/// asking may block too.
///
/// A process whose descriptors block has at most `threadLimitPerProcess` threads at a time; the others close what other processes sent.
///
/// The system may have no further thread when one is needed, and then nothing would happen later to start it. So one is there from the first port
/// on, and before a thread closes something, it makes sure of another one that takes the next descriptor.
final class DescriptorCloser: @unchecked Sendable {
    // SAFETY: a constant, a lock and an atomic.

    static let threadLimit = 8
    static let threadLimitPerProcess = 2
    private static let idleTime = Duration.seconds(10)
    /// How often a thread tries to start another one before it closes without: less than a second in all.
    private static let startLimit = 4
    private static let shortestPause: UInt32 = 50_000

    /// The descriptors of one process.
    private struct Sender: Sendable {
        var waiting = LinkedQueue<Int32>()
        /// Threads that are closing one.
        var closing = 0

        var pending: Int { waiting.count + closing }
        /// How many further threads could close one.
        var openings: Int { min(waiting.count, DescriptorCloser.threadLimitPerProcess - closing) }
    }

    private struct State: Sendable {
        /// By process id; 0 stands for senders that the kernel does not name.
        var senders: [Int32: Sender] = [:]
        /// The processes with openings, in turn.
        var turns: [Int32] = []
        var threads = 0
        var closing = 0
        /// Threads that have nothing to do, each with the latch that wakes it.
        var idle: [Latch] = []

        mutating func append(_ descriptor: Int32, from process: Int32) {
            let hadTurn = senders[process, default: Sender()].openings > 0
            _ = senders[process, default: Sender()].waiting.append(descriptor)
            if !hadTurn && senders[process]!.openings > 0 { turns.append(process) }  // it was added above
        }

        /// How many threads could take the next descriptor.
        var free: Int { threads - closing }

        /// Whether there is more to close than threads on their way to do so.
        var needsThread: Bool { turns.reduce(0) { $0 + (senders[$1]?.openings ?? 0) } > threads - idle.count - closing }

        mutating func begin() -> (descriptor: Int32, process: Int32)? {
            guard !turns.isEmpty else { return nil }
            let process = turns.removeFirst()
            guard let descriptor = senders[process]?.waiting.removeFirst() else { return nil }
            senders[process]!.closing += 1  // it has just had a descriptor
            closing += 1
            if senders[process]!.openings > 0 { turns.append(process) }
            return (descriptor, process)
        }

        mutating func finish(_ process: Int32) {
            closing -= 1
            guard var sender = senders[process] else { return }
            if sender.openings == 0 && !sender.waiting.isEmpty { turns.append(process) }
            sender.closing -= 1
            senders[process] = sender.pending == 0 ? nil : sender
        }
    }

    private let mark = ProcessMark()
    private let state = LoopLock(State())
    private let count = Atomic<Int>(0)

    private static let current = Atomic<UInt>(0)

    /// Makes the word, which Swift would otherwise make at its first use.
    static func prepare() { _ = current.load(ordering: .relaxed) }

    /// The closer of this process.
    private static var shared: DescriptorCloser {
        while true {  // ends: with the existing closer, or with a new one
            let bits = current.load(ordering: .acquiring)
            if let present = object(bits), present.mark.isOurs { return present }
            let made = Unmanaged.passRetained(DescriptorCloser())
            let (isShared, _) = current.compareExchange(
                expected: bits, desired: UInt(bitPattern: made.toOpaque()), ordering: .acquiringAndReleasing)
            if !isShared { made.release() }
        }
    }

    private static func object(_ bits: UInt) -> DescriptorCloser? {
        UnsafeRawPointer(bitPattern: bits).map { Unmanaged<DescriptorCloser>.fromOpaque($0).takeUnretainedValue() }
    }

    private static var existing: DescriptorCloser? {
        guard let present = object(current.load(ordering: .acquiring)), present.mark.isOurs else { return nil }
        return present
    }

    /// How many descriptors wait to be closed, or are being closed. Thread-safe.
    static var pending: Int { existing?.count.load(ordering: .relaxed) ?? 0 }

    /// How many of them came from `process`. Takes a lock. Thread-safe.
    static func pending(from process: Int32) -> Int { existing?.state.withLock { $0.senders[process]?.pending ?? 0 } ?? 0 }

    /// Closes a descriptor that `process` has sent. Does not block. Thread-safe.
    static func close(_ descriptor: Int32, from process: Int32) { shared.enqueue(descriptor, process) }

    /// Shuts down a connection for both ends and closes it. Does not block. Thread-safe.
    static func end(_ connection: Int32) {
        cplatform_shutdown(connection)
        // Nothing arrives any more. Without unread messages there are no descriptors in it whose close could block.
        if !cplatform_has_unread(connection) { return closeNow(connection) }
        shared.enqueue(connection, PortPeer(of: connection)?.process ?? 0)
    }

    /// Makes sure of a thread. Called before a process has its first port: without a thread, what other processes send would stay open.
    /// Thread-safe.
    static func start() throws(RunLoop.PortError) {
        let closer = shared
        let code = closer.state.withLock { $0.threads > 0 ? 0 : closer.startThread(&$0) }
        if code != 0 { throw .system(operation: "starting a thread that closes descriptors from other processes", errno: code) }
    }

    private func enqueue(_ descriptor: Int32, _ process: Int32) {
        count.add(1, ordering: .relaxed)
        let latch = state.withLock { state -> Latch? in
            state.append(descriptor, from: process)
            if !state.needsThread { return nil }
            if let latch = state.idle.popLast() { return latch }
            // If it cannot be started, those that are there take the descriptor.
            _ = startThread(&state)
            return nil
        }
        latch?.open()
    }

    /// Returns zero, or the errno if no thread can be started. Called under the lock, so that nobody relies on a thread that cannot be started.
    private func startThread(_ state: inout State) -> Int32 {
        if state.threads == Self.threadLimit { return 0 }
        let code = NativeThread.start { [self] in closeAll() }
        if code == 0 { state.threads += 1 }
        return code
    }

    /// What a closing thread does next.
    private enum Step: Sendable {
        case close(descriptor: Int32, process: Int32)
        case wait
        /// Tries again to start the thread that takes the next descriptor.
        case retry
    }

    private func closeAll() {
        blockSignals()
        cplatform_name_this_thread("closing")
        var finished: Int32?
        var failedStarts = 0
        while true {  // ends: after an idle time, unless no other thread could take the next descriptor
            let latch = Latch()
            let step = state.withLock { state -> Step in
                if let finished { state.finish(finished) }
                if !state.turns.isEmpty && state.free == 1 {
                    // This close may take as long as the sender likes.
                    if startThread(&state) == 0 {
                        failedStarts = 0
                    } else if failedStarts < Self.startLimit {
                        failedStarts += 1
                        return .retry
                    }
                }
                if let (descriptor, process) = state.begin() { return .close(descriptor: descriptor, process: process) }
                state.idle.append(latch)
                return .wait
            }
            finished = nil
            switch step {
            case .close(let descriptor, let process):
                closeNow(descriptor)
                count.subtract(1, ordering: .relaxed)
                finished = process
            case .retry: usleep(Self.shortestPause << (failedStarts - 1))
            case .wait: if !waitForMore(latch) { return }
            }
        }
    }

    /// Waits until there is something to close. Returns false if the thread ends instead.
    private func waitForMore(_ latch: Latch) -> Bool {
        if latch.wait(until: .now.advanced(by: Self.idleTime)) { return true }
        let isOver = state.withLock { state -> Bool in
            // If its latch is not in the list any more, there is something to close.
            guard state.free > 1, let place = state.idle.firstIndex(where: { $0 === latch }) else { return false }
            state.idle.remove(at: place)
            state.threads -= 1
            return true
        }
        return !isOver && latch.wait(until: nil)
    }

    /// How many threads are in a close.
    static var testsOnlyClosing: Int { existing?.state.withLock { $0.closing } ?? 0 }
}

private func closeNow(_ descriptor: Int32) { close(descriptor) }
