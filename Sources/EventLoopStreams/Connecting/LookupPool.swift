// A few threads that look up the names of hosts.
//
// Lifecycle: a thread starts for a request if fewer than the maximum run, and ends when no request waits. To start one takes some
// 30 µs, less than a lookup, so no thread is kept. The process's pool is never released.
//
// A name that nobody answers keeps its thread for as long as the resolver tries, 10 s and more, and nothing can interrupt it. So there are threads for
// many such names at a time, and those whose callers have all gone do not count.

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
        /// Those in progress, by their thread's number, and whether nobody waits for them.
        var running: [UInt64: (request: Request, isAbandoned: Bool)] = [:]
        var lastThread: UInt64 = 0
        var threads = 0
        var abandoned = 0
        /// In flight, by name.
        var lookups: [String: Lookup] = [:]
        var lastCaller: UInt64 = 0
    }

    /// One lookup for all who ask for its name.
    private struct Lookup {
        let request: Request
        var callers: [UInt64: @Sendable (LookupResult) -> Void] = [:]
    }

    private let state = LoopLock(State())
    private let threadLimit: Int
    private let waitingLimit: Int
    private let mark = ProcessMark()

    /// - Parameters:
    ///   - threads: as many lookups are in progress at most, and as many again that were cancelled.
    ///   - waiting: as many more wait at most; others are refused.
    init(threads: Int, waiting: Int) { (threadLimit, waitingLimit) = (threads, waiting) }

    /// The pool of this process.
    static var shared: LookupPool {
        while true {  // ends: with the stored pool, or with a new one
            let stored = cstreams_lookup_pool()
            if let stored {
                let pool = Unmanaged<LookupPool>.fromOpaque(stored).takeUnretainedValue()
                if pool.mark.isOurs { return pool }
            }
            let new = Unmanaged.passRetained(LookupPool(threads: 128, waiting: 1024))
            if !cstreams_replace_lookup_pool(stored, new.toOpaque()) { new.release() }
        }
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
        start(request)
        return request
    }

    private func start(_ request: Request) { /* DOES CALLOUT */
        enum Step { case wait, startThread, refuse }
        let step = state.withLock { state -> Step in
            let isBusy = state.threads - min(state.abandoned, threadLimit) >= threadLimit
            if isBusy && state.waiting.count >= waitingLimit { return .refuse }
            state.waiting.append(request)
            if isBusy { return .wait }
            state.threads += 1
            return .startThread
        }
        switch step {
        case .wait: break
        case .refuse: request.refuse(.isFull(waitingLimit))
        case .startThread: startThread()
        }
    }

    /// Removes a request that waits. If its body has begun, it goes on, and its thread does not count any more. Thread-safe.
    func cancel(_ request: Request) { /* DOES CALLOUT */
        guard mark.isOurs else { return }
        let startsThread = state.withLock { state -> Bool in
            state.waiting.removeAll { $0 === request }
            guard let (thread, _) = state.running.first(where: { $0.value.request === request }), !state.running[thread]!.isAbandoned
            else { return false }
            state.running[thread]!.isAbandoned = true
            state.abandoned += 1
            if state.waiting.isEmpty || state.threads - min(state.abandoned, threadLimit) >= threadLimit { return false }
            state.threads += 1
            return true
        }
        if startsThread { startThread() }
    }

    /// Calls `answer` with what `run` returns on a thread of the pool. `run` is not called if a lookup of this name is in flight: all who ask get its
    /// answer. Returns what cancels: then `answer` is not called, and the lookup ends or is abandoned with its last caller.
    func lookUp(
        _ name: String, _ run: @escaping @Sendable () -> LookupResult, _ answer: @escaping @Sendable (LookupResult) -> Void
    ) -> @Sendable () -> Void { /* DOES CALLOUT */
        let request = Request {
            self.finish(name, run())
        } _: { refusal in
            self.finish(name, .failure(.nameServiceFailed(host: name, reason: "\(refusal)")))
        }
        let (caller, isNew) = state.withLock { state in
            state.lastCaller += 1
            let isNew = state.lookups[name] == nil
            state.lookups[name, default: Lookup(request: request)].callers[state.lastCaller] = answer
            return (state.lastCaller, isNew)
        }
        if isNew {
            start(request)
            // Its only caller may have left before it waited.
            if state.withLock({ $0.lookups[name].map { $0.request === request && $0.callers.isEmpty } ?? false }) { leave(name, caller) }
        }
        return { self.leave(name, caller) }
    }

    private func finish(_ name: String, _ result: LookupResult) { /* DOES CALLOUT */
        let callers = state.withLock { $0.lookups.removeValue(forKey: name)?.callers ?? [:] }
        for caller in callers.values { caller(result) }
    }

    /// The caller has gone. With the last one, a lookup that has not begun is forgotten. One in progress goes on, and who asks meanwhile shares it.
    private func leave(_ name: String, _ caller: UInt64) { /* DOES CALLOUT */
        guard mark.isOurs else { return }
        // Released outside the lock: it holds what the caller waits with.
        var answer: (@Sendable (LookupResult) -> Void)?
        let request = state.withLock { state -> Request? in
            answer = state.lookups[name]?.callers.removeValue(forKey: caller)
            guard let lookup = state.lookups[name], lookup.callers.isEmpty else { return nil }
            if state.waiting.contains(where: { $0 === lookup.request }) { state.lookups[name] = nil }
            return lookup.request
        }
        withExtendedLifetime(answer) {}
        if let request { cancel(request) }
    }

    /// Starts a thread that `threads` counts already. Without it, the threads that run come to the requests that wait. If none runs, all are
    /// refused.
    private func startThread() { /* DOES CALLOUT */
        let context = Unmanaged.passRetained(self)
        let code = cstreams_start_thread(
            "name lookup", { Unmanaged<LookupPool>.fromOpaque($0!).takeRetainedValue().work() }, context.toOpaque())
        if code == 0 { return }
        context.release()
        let refused = state.withLock { state -> [Request] in
            state.threads -= 1
            if state.threads > 0 { return [] }
            defer { state.waiting = [] }
            return state.waiting
        }
        for request in refused { request.refuse(.noThread(errno: code)) }
    }

    /// The life of a thread.
    private func work() { /* DOES CALLOUT */
        let thread = state.withLock { state in
            state.lastThread += 1
            return state.lastThread
        }
        while let request = next(thread) { request.body() }  // ends: when no request waits
    }

    private func next(_ thread: UInt64) -> Request? {
        state.withLock { state in
            let wasAbandoned = state.running.removeValue(forKey: thread)?.isAbandoned ?? false
            if wasAbandoned { state.abandoned -= 1 }
            // Where others run in place of one that was abandoned, it does not come back.
            if state.waiting.isEmpty || state.threads - min(state.abandoned, threadLimit) > threadLimit {
                state.threads -= 1
                return nil
            }
            let request = state.waiting.removeFirst()
            state.running[thread] = (request, false)
            return request
        }
    }

    /// For tests: requests that wait, and threads.
    var load: (waiting: Int, threads: Int) { state.withLock { ($0.waiting.count, $0.threads) } }
}
