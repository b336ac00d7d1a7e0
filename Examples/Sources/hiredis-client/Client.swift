// hiredis, the C client of Redis, on a loop, through hiredis's own adapter for libevent.
//
// Lifecycle of the connection: hiredis frees it after the callback that reports its end. So it is freed by `disconnect`, when the last reply
// has come, by a failure, or at the latest by `free`. One that is not connected yet ends without a callback.

import CHiredis
import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

struct NoConnection: Error { let reason: String }

/// One connection. All members but `increment` are for the loop's thread.
final class Client: @unchecked Sendable {
    // SAFETY: the variables are used on the loop's thread only.
    private let path: String
    private var connection: UnsafeMutablePointer<redisAsyncContext>?
    private var isConnected = false
    private var hold: RunLoopThread.Hold?

    init(path: String) { self.path = path }

    func connect(on loop: RunLoop) throws {
        guard let connection = redisAsyncConnectUnix(path) else { throw NoConnection(reason: "no memory") }
        guard connection.pointee.err == 0, loop.withEventBase({ redisLibeventAttach(connection, $0) }) == REDIS_OK else {
            let reason = connection.pointee.errstr.map { String(cString: $0) } ?? "no memory"
            redisAsyncFree(connection)
            throw NoConnection(reason: "\(path): \(reason)")
        }
        connection.pointee.data = Unmanaged.passUnretained(self).toOpaque()
        redisAsyncSetConnectCallback(connection) { connection, status in
            if status == REDIS_OK { client(of: connection).isConnected = true } else { client(of: connection).hasEnded() }
        }
        redisAsyncSetDisconnectCallback(connection) { connection, _ in client(of: connection).hasEnded() }
        self.connection = connection
        hold = loop.holdThread()
    }

    /// Returns nil if there is no connection any more, or if the server answers with an error. Thread-safe.
    func increment(_ key: String, on loop: RunLoop) async -> Int? {
        await withCheckedContinuation { continuation in
            let isAccepted = loop.perform { self.send(["INCR", key]) { continuation.resume(returning: $0) } }
            if !isAccepted { continuation.resume(returning: nil) }
        }
    }

    private func send(_ words: [String], _ completion: @escaping (Int?) -> Void) {
        guard let connection else { return completion(nil) }
        let context = Unmanaged.passRetained(Completion(completion)).toOpaque()
        let copies = words.map { strdup($0) }
        defer { copies.forEach { systemFree($0) } }
        var arguments = copies.map { UnsafePointer($0) }
        let code = redisAsyncCommandArgv(
            connection,
            { _, reply, context in
                // Nil if the connection has ended before the reply. An error is a reply of another type.
                let reply = reply?.assumingMemoryBound(to: redisReply.self).pointee
                let number = reply?.type == REDIS_REPLY_INTEGER ? reply.map { Int($0.integer) } : nil
                Unmanaged<Completion>.fromOpaque(context!).takeRetainedValue().call(number)
            }, context, Int32(words.count), &arguments, nil)
        if code != REDIS_OK { Unmanaged<Completion>.fromOpaque(context).takeRetainedValue().call(nil) }
    }

    /// Ends the connection when all replies have come.
    func disconnect() {
        guard let connection else { return }
        // Before it is connected, and without a reply to wait for, hiredis would free it and call nobody.
        if isConnected || connection.pointee.replies.head != nil { redisAsyncDisconnect(connection) } else { free() }
    }

    /// Ends the connection at once.
    func free() {
        guard let connection else { return }
        redisAsyncFree(connection)
        // The disconnect callback has done this already, if it was connected.
        hasEnded()
    }

    fileprivate func hasEnded() {
        (connection, isConnected) = (nil, false)
        hold?.release()
    }
}

private func systemFree(_ memory: UnsafeMutableRawPointer?) { free(memory) }

private func client(of connection: UnsafePointer<redisAsyncContext>?) -> Client {
    Unmanaged<Client>.fromOpaque(connection!.pointee.data).takeUnretainedValue()
}

private final class Completion {
    let call: (Int?) -> Void
    init(_ call: @escaping (Int?) -> Void) { self.call = call }
}
