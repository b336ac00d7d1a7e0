// hiredis's asynchronous connection on the event base of a loop.
//
// Lifecycle of the context: `init` makes it. hiredis frees it after the disconnect callback, or `free` does. hiredis calls the closure of
// each command once: with the reply, or without one when the connection ends.

import CHiredis
import EventLoop
import TestSupport

/// On the loop's thread only.
final class RedisConnection {
    enum Reply: Equatable {
        case integer(Int)
        case text(String)
        case error(String)
        /// The connection has ended, and with it the command.
        case none
    }

    private var context: UnsafeMutablePointer<redisAsyncContext>?
    /// Called when the connection has ended; true if nothing failed.
    var onDisconnect: ((Bool) -> Void)?
    /// How many closures of commands were called.
    let calls = Box(0)

    /// Throws if nobody listens there.
    init(_ path: String, on loop: RunLoop, _ mode: RunLoop.Mode) throws {
        guard let context = redisAsyncConnectUnix(path) else { throw SystemFailure("redisAsyncConnectUnix") }
        guard context.pointee.err == 0 else {
            let failure = SystemFailure("redisAsyncConnectUnix \(path)")
            redisAsyncFree(context)
            throw failure
        }
        let code = loop.withEventBase(forMode: mode) { redisLibeventAttach(context, $0) }
        precondition(code == REDIS_OK, "a new connection is attached nowhere else")
        self.context = context
        context.pointee.data = Unmanaged.passUnretained(self).toOpaque()
        redisAsyncSetDisconnectCallback(context) { context, status in
            let connection = Unmanaged<RedisConnection>.fromOpaque(context!.pointee.data).takeUnretainedValue()
            connection.context = nil
            connection.onDisconnect?(status == REDIS_OK)
        }
    }

    deinit { free() }

    /// Ends the connection at once. The commands in progress get no reply.
    func free() {
        guard let context else { return }
        self.context = nil
        redisAsyncFree(context)
    }

    /// Ends the connection after the replies to all commands so far.
    func disconnect() {
        if let context { redisAsyncDisconnect(context) }
    }

    /// Returns false if the connection has ended. Then `body` is not called.
    @discardableResult
    func send(_ words: String..., body: @escaping (Reply) -> Void) -> Bool {
        guard let context else { return false }
        let text = words.reduce("*\(words.count)\r\n") { $0 + "$\($1.utf8.count)\r\n\($1)\r\n" }
        let call = Unmanaged.passRetained(Call(self, body))
        let code = redisAsyncFormattedCommand(
            context,
            { _, reply, call in
                let call = Unmanaged<Call>.fromOpaque(call!).takeRetainedValue()
                call.calls.increment()
                call.body(Reply(reply?.assumingMemoryBound(to: redisReply.self).pointee))
            }, call.toOpaque(), text, text.utf8.count)
        if code != REDIS_OK { call.release() }
        return code == REDIS_OK
    }

    private final class Call {
        let calls: Box<Int>
        let body: (Reply) -> Void
        init(_ connection: RedisConnection, _ body: @escaping (Reply) -> Void) { (calls, self.body) = (connection.calls, body) }
    }
}

extension RedisConnection.Reply {
    init(_ reply: redisReply?) {
        guard let reply else { self = .none; return }
        switch reply.type {
        case REDIS_REPLY_INTEGER: self = .integer(Int(reply.integer))
        case REDIS_REPLY_ERROR: self = .error(String(cString: reply.str))
        case REDIS_REPLY_STATUS, REDIS_REPLY_STRING: self = .text(String(cString: reply.str))
        default: self = .none
        }
    }
}
