// A few threads that look up the names of hosts.
//
// Lifecycle: a thread starts for a request if fewer than the maximum run, and ends when no request waits. To start one takes some
// 30 µs, less than a lookup, so no thread is kept. The process's pool is never released; a child of fork makes one of its own.

internal import CStreams
internal import EventLoop

/// What a lookup gave: addresses, with the port of the request.
typealias LookupResult = Result<[RunLoop.SocketAddress], StreamError>

/// Runs lookups, which block, on a bounded number of threads. Thread-safe.
final class LookupPool: Sendable {
    /// A lookup that waits or is in progress.
    final class Request: Sendable {
        fileprivate let body: @Sendable () -> Void
        fileprivate let refuse: @Sendable (Refusal) -> Void

        fileprivate init(_ body: @escaping @Sendable () -> Void, _ refuse: @escaping @Sendable (Refusal) -> Void) {
            (self.body, self.refuse) = (body, refuse)
        }
    }

    private struct State {
        /// In order. The first ones go to the next threads that are free.
        var waiting: [Request] = []
        var threads = 0
    }

    private let state = StreamLock(State())
    private let threadLimit: Int
    private let waitingLimit: Int
    /// The process that made it.
    private let forks = cstreams_forks()

    /// - Parameters:
    ///   - threads: as many lookups are in progress at most.
    ///   - waiting: as many more wait at most; others are refused.
    init(threads: Int, waiting: Int) { (threadLimit, waitingLimit) = (threads, waiting) }

    /// The pool of this process.
    static var shared: LookupPool {
        if let pool = cstreams_lookup_pool() { return Unmanaged<LookupPool>.fromOpaque(pool).takeUnretainedValue() }
        let new = Unmanaged.passRetained(LookupPool(threads: 4, waiting: 1024))
        let installed = cstreams_install_lookup_pool(new.toOpaque())!  // not null: `new`, or the one of another thread
        if installed != new.toOpaque() { new.release() }
        return Unmanaged<LookupPool>.fromOpaque(installed).takeUnretainedValue()
    }

    /// Why the pool did not take a request.
    enum Refusal: Sendable, Equatable {
        /// So many requests wait already.
        case isFull(Int)
        /// No thread could be started.
        case noThread(errno: Int32)
    }

    /// Calls `body` on a thread of the pool, or `refuse` before this returns or later, but never both. Neither if the request is cancelled
    /// before.
    @discardableResult
    func start(_ body: @escaping @Sendable () -> Void, refuse: @escaping @Sendable (Refusal) -> Void) -> Request { /* DOES CALLOUT */
        let request = Request(body, refuse)
        enum Step { case wait, startThread, refuse }
        let step = state.withLock { state -> Step in
            let isBusy = state.threads >= threadLimit
            if isBusy && state.waiting.count >= waitingLimit { return .refuse }
            state.waiting.append(request)
            if isBusy { return .wait }
            state.threads += 1
            return .startThread
        }
        switch step {
        case .wait: break
        case .refuse: refuse(.isFull(waitingLimit))
        case .startThread:
            let code = startThread()
            if code != 0 { for request in requestsWithoutThread() { request.refuse(.noThread(errno: code)) } }
        }
        return request
    }

    /// Removes a request that waits. If its body has begun, it goes on, and this does nothing. Thread-safe; no-op in a child of fork.
    func cancel(_ request: Request) {
        // A thread of the parent may have held the lock at the fork.
        guard forks == cstreams_forks() else { return }
        state.withLock { state in state.waiting.removeAll { $0 === request } }
    }

    private func startThread() -> Int32 {
        let context = Unmanaged.passRetained(self)
        let code = cstreams_start_thread(
            "name lookup", { Unmanaged<LookupPool>.fromOpaque($0!).takeRetainedValue().work() }, context.toOpaque())
        if code != 0 { context.release() }
        return code
    }

    /// A thread could not be started. Takes all requests if no other thread will come to them.
    private func requestsWithoutThread() -> [Request] {
        state.withLock { state in
            state.threads -= 1
            if state.threads > 0 { return [] }
            defer { state.waiting = [] }
            return state.waiting
        }
    }

    /// The life of a thread.
    private func work() { /* DOES CALLOUT */
        while let request = next() { request.body() }  // ends: when no request waits
    }

    private func next() -> Request? {
        state.withLock { state in
            if state.waiting.isEmpty {
                state.threads -= 1
                return nil
            }
            return state.waiting.removeFirst()
        }
    }

    /// For tests: requests that wait, and threads.
    var load: (waiting: Int, threads: Int) { state.withLock { ($0.waiting.count, $0.threads) } }
}
