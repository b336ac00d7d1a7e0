// A list of a Redis server as a queue, through hiredis and its adapter for libevent.
//
// Lifecycle of the connections: hiredis frees them inside `redisAsyncFree`, which calls the replies that are still to come with nil.

import CHiredis
import EventLoop
import Glibc

struct NoConnection: Error { let reason: String }

/// Takes jobs from the list `jobs`, and adds some. On the main loop.
@MainActor
final class JobQueue {
    private let body: @Sendable (String) -> Void
    private var taking: UnsafeMutablePointer<redisAsyncContext>?
    private var adding: UnsafeMutablePointer<redisAsyncContext>?

    /// Called on the main thread. `body` is called for each job, there.
    nonisolated init(_ path: String, _ body: @escaping @Sendable (String) -> Void) throws {
        self.body = body
        try MainActor.assumeIsolated {
            taking = try Self.connect(path)
            adding = try Self.connect(path)
            takeNext()
        }
    }

    private static func connect(_ path: String) throws -> UnsafeMutablePointer<redisAsyncContext> {
        guard let connection = redisAsyncConnectUnix(path) else { throw NoConnection(reason: "no memory") }
        guard connection.pointee.err == 0, RunLoop.main.withEventBase({ redisLibeventAttach(connection, $0) }) == REDIS_OK else {
            let reason = connection.pointee.errstr.map { String(cString: $0) } ?? "no memory"
            redisAsyncFree(connection)
            throw NoConnection(reason: "\(path): \(reason)")
        }
        return connection
    }

    /// Waits for the next job; no time limit.
    private func takeNext() {
        guard let taking else { return }
        send(["BLPOP", "jobs", "0"], on: taking) { queue, reply in
            // The name of the list, and the job. Nil if the connection has ended.
            guard let reply, reply.elements == 2, let job = reply.element[1]?.pointee.str else { return }
            queue.body(String(cString: job))
            queue.takeNext()
        }
    }

    func add(_ job: String) {
        guard let adding else { return }
        send(["RPUSH", "jobs", job], on: adding) { _, _ in }
    }

    func close() {
        if let taking { redisAsyncFree(taking) }
        if let adding { redisAsyncFree(adding) }
        (taking, adding) = (nil, nil)
    }

    private func send(
        _ words: [String], on connection: UnsafeMutablePointer<redisAsyncContext>,
        _ completion: @escaping @MainActor @Sendable (JobQueue, redisReply?) -> Void
    ) {
        let copies = words.map { strdup($0) }
        defer { copies.forEach { free($0) } }
        var arguments = copies.map { UnsafePointer($0) }
        let context = Unmanaged.passRetained(Completion(self, completion)).toOpaque()
        let code = redisAsyncCommandArgv(
            connection,
            { _, reply, context in
                let completion = Unmanaged<Completion>.fromOpaque(context!).takeRetainedValue()
                let reply = reply?.assumingMemoryBound(to: redisReply.self).pointee
                // The main loop calls libevent, and libevent this.
                MainActor.assumeIsolated { completion.body(completion.queue, reply) }
            }, context, Int32(words.count), &arguments, nil)
        if code != REDIS_OK { Unmanaged<Completion>.fromOpaque(context).release() }
    }

    private final class Completion: Sendable {
        let queue: JobQueue
        let body: @MainActor @Sendable (JobQueue, redisReply?) -> Void
        init(_ queue: JobQueue, _ body: @escaping @MainActor @Sendable (JobQueue, redisReply?) -> Void) {
            (self.queue, self.body) = (queue, body)
        }
    }
}
