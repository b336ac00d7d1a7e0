// Requests that wait for their replies on one connection to a named port. The tasks that sent them, and the port, are on the calling
// thread's loop. The port serves only in a mode of its own, so a reply comes when the workload wants it.

import CPerfPeers
import EventLoop
import EventLoopMessagePorts
import Glibc

/// Used on one thread.
final class PendingRequests {
    private struct Counts {
        var started = 0
        var ended = 0
        /// The loop stops when as many have started, or have ended.
        var wantedStarts = 0
        var wantedEnds = 0
    }

    private static let serving: RunLoop.Mode = "serving"

    private let loop = RunLoop.current
    private let local: RunLoop.LocalMessagePort
    private let remote: RunLoop.RemoteMessagePort
    private let timeout: Duration
    private let counts = OnLoop<Counts>(.allocate(capacity: 1))
    private let alive: RunLoop.KeepAlive
    /// Those that wait are from `oldest` on.
    private var tasks: [Task<Void, Never>] = []
    private var oldest = 0

    init(timeout: Duration) {
        let name = "eventloop-perf.\(getpid()).\(perf_wall_ns())"
        local = try! RunLoop.LocalMessagePort(name: name) { _, _, data in data }  // nobody else has the name
        remote = try! RunLoop.RemoteMessagePort(name: name)
        self.timeout = timeout
        counts.pointer.initialize(to: Counts())
        alive = loop.keepAlive()
        loop.add(local, forMode: Self.serving)
    }

    /// Sends so many requests. Those for which the socket has no room wait in the connection's queue.
    func send(_ count: Int) {
        counts.pointer.pointee.wantedStarts += count
        for _ in 0..<count {
            tasks.append(
                Task(executorPreference: loop) { [loop, counts, remote, timeout] in
                    counts.pointer.pointee.started += 1
                    if counts.pointer.pointee.started == counts.pointer.pointee.wantedStarts { loop.stop() }
                    _ = try? await remote.request(id: 1, data: [1, 2, 3, 4, 5, 6, 7, 8], timeout: timeout)
                    counts.pointer.pointee.ended += 1
                    if counts.pointer.pointee.ended == counts.pointer.pointee.wantedEnds { loop.stop() }
                })
        }
        run { $0.started == $0.wantedStarts }
    }

    /// Answers the oldest requests, and waits until their tasks have the replies. Not after `cancel`, because the port would answer
    /// requests that nobody waits for any more.
    func answer(_ count: Int) {
        counts.pointer.pointee.wantedEnds += count
        for _ in 0..<count {
            let result = loop.run(mode: Self.serving, for: .seconds(60), returnAfterSourceHandled: true)
            precondition(result == .handledSource, "a request did not arrive")
        }
        run { $0.ended == $0.wantedEnds }
        oldest += count
        if oldest > tasks.count / 2 {
            tasks.removeFirst(oldest)
            oldest = 0
        }
    }

    /// Cancels the newest requests, and waits until their tasks have ended.
    func cancel(_ count: Int) {
        counts.pointer.pointee.wantedEnds += count
        for task in tasks.suffix(count) { task.cancel() }
        tasks.removeLast(count)
        run { $0.ended == $0.wantedEnds }
    }

    func end() {
        counts.pointer.pointee.wantedEnds = counts.pointer.pointee.started
        remote.invalidate()
        run { $0.ended == $0.wantedEnds }
        local.invalidate()
        alive.cancel()
        _ = loop.run(until: .distantPast)
        counts.pointer.deallocate()
    }

    private func run(until isReached: (Counts) -> Bool) {
        // Ends: the last task stops the loop.
        while !isReached(counts.pointer.pointee) { _ = loop.run(for: .seconds(60)) }
    }
}
