// libunbound's event interface on the event base of a loop.
//
// Lifecycle of the context: made by `init`, freed by `free`. libunbound calls the closure of each request once, unless the request is
// cancelled or the context is freed before; `free` releases those closures.

import CUnbound
import EventLoop
import TestSupport

/// On the loop's thread only.
final class UnboundResolver {
    struct Outcome: Equatable {
        /// RFC 1035: 0 is success, 3 means that the name does not exist. Nil if libunbound has no reply.
        var code: UInt8?
        /// The number of answers in the reply.
        var answers: Int
        /// If the last record of the reply is an address: that one.
        var lastAddress: UInt32
    }

    private var context: OpaquePointer?
    private var requests: [Int32: Unmanaged<Call>] = [:]
    /// How many closures of requests were called.
    let calls = Box(0)

    /// Forwards every question to the server at `port`.
    init(_ port: UInt16, on loop: RunLoop, _ mode: RunLoop.Mode) throws {
        guard let context = loop.withEventBase(forMode: mode, { ub_ctx_create_event($0) }) else {
            throw SystemFailure("ub_ctx_create_event")
        }
        self.context = context
        ub_ctx_debugout(context, nil)
        let options = [("module-config:", "iterator"), ("do-not-query-localhost:", "no"), ("edns-buffer-size:", "512")]
        for (name, value) in options {
            guard ub_ctx_set_option(context, name, value) == 0 else { throw SystemFailure("ub_ctx_set_option \(name)") }
        }
        guard ub_ctx_set_fwd(context, "127.0.0.1@\(port)") == 0 else { throw SystemFailure("ub_ctx_set_fwd") }
    }

    func free() {
        guard let context else { return }
        self.context = nil
        ub_ctx_delete(context)
        for call in requests.values { call.release() }
        requests = [:]
    }

    /// Returns the number of the request. libunbound may call `body` before this returns, if it knows the answer.
    @discardableResult
    func resolve(_ name: String, _ body: @escaping (Outcome) -> Void) -> Int32 {
        let call = Call(self, body)
        var number: Int32 = 0
        let (typeA, classIN): (Int32, Int32) = (1, 1)
        let code = ub_resolve_event(
            context, name, typeA, classIN, Unmanaged.passRetained(call).toOpaque(),
            { call, code, packet, count, _, _, _ in
                let bytes = UnsafeRawBufferPointer(start: packet, count: Int(count))
                Unmanaged<Call>.fromOpaque(call!).takeRetainedValue().finish(code, bytes)
            }, &number)
        precondition(code == 0, String(cString: ub_strerror(code)))
        if !call.isFinished {
            call.number = number
            requests[number] = .passUnretained(call)
        }
        return number
    }

    func cancel(_ number: Int32) {
        ub_cancel(context, number)
        requests.removeValue(forKey: number)?.release()
    }

    private final class Call {
        private unowned let resolver: UnboundResolver
        private let body: (Outcome) -> Void
        var number: Int32?
        var isFinished = false

        init(_ resolver: UnboundResolver, _ body: @escaping (Outcome) -> Void) { (self.resolver, self.body) = (resolver, body) }

        func finish(_ code: Int32, _ packet: UnsafeRawBufferPointer) {
            isFinished = true
            if let number { resolver.requests[number] = nil }
            resolver.calls.increment()
            guard code == 0, packet.count >= 12 else { return body(Outcome(code: nil, answers: 0, lastAddress: 0)) }
            let answers = Int(packet[6]) << 8 | Int(packet[7])
            // At the end, libunbound appends a record of eleven bytes about itself (EDNS). Its domain is the root, and its type 41.
            let hasOptions = packet.count >= 23 && packet[packet.count - 11] == 0 && packet[packet.count - 9] == 41
            let records = packet.dropLast(hasOptions ? 11 : 0)
            body(Outcome(code: packet[3] & 15, answers: answers, lastAddress: records.suffix(4).reduce(0) { $0 << 8 | UInt32($1) }))
        }
    }
}
