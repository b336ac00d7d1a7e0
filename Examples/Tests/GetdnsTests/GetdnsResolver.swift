// getdns on the event base of a loop, by its extension for libevent.
//
// Lifecycle of the context: made by `init`, freed by `free`. getdns calls the closure of each request once, also when the context is freed.

import CGetdns
import EventLoop
import TestSupport

/// On the loop's thread only.
final class GetdnsResolver {
    enum Outcome: Equatable {
        /// The code of RFC 1035 (0 is success, 3 means that the name does not exist) and the number of answers.
        case reply(code: UInt32, answers: Int)
        case timedOut
        case cancelled
        case failed
    }

    private var context: OpaquePointer?
    /// How many closures of requests were called.
    let calls = Box(0)

    /// Asks the server at `port`.
    init(_ port: UInt16, on loop: RunLoop, _ mode: RunLoop.Mode, timeoutMilliseconds: UInt64 = 60_000) throws {
        let ownSettings: Int32 = 0
        try check(getdns_context_create(&context, ownSettings), "getdns_context_create")
        try check(getdns_context_set_resolution_type(context, GETDNS_RESOLUTION_STUB), "getdns_context_set_resolution_type")
        try check(getdns_context_set_timeout(context, timeoutMilliseconds), "getdns_context_set_timeout")
        let server = getdns_dict_create()
        defer { getdns_dict_destroy(server) }
        var bytes: [UInt8] = [127, 0, 0, 1]
        try bytes.withUnsafeMutableBufferPointer { bytes in
            var address = getdns_bindata(size: bytes.count, data: bytes.baseAddress)
            try check(getdns_dict_set_bindata(server, "address_data", &address), "getdns_dict_set_bindata")
        }
        try check(getdns_dict_util_set_string(server, "address_type", "IPv4"), "getdns_dict_util_set_string")
        try check(getdns_dict_set_int(server, "port", UInt32(port)), "getdns_dict_set_int")
        let servers = getdns_list_create()
        defer { getdns_list_destroy(servers) }
        try check(getdns_list_set_dict(servers, 0, server), "getdns_list_set_dict")
        try check(getdns_context_set_upstream_recursive_servers(context, servers), "getdns_context_set_upstream_recursive_servers")
        try loop.withEventBase(forMode: mode) {
            try check(getdns_extension_set_libevent_base(context, $0), "getdns_extension_set_libevent_base")
        }
    }

    /// Calls the closures of the requests in progress. Not inside getdns.
    func free() {
        guard let context else { return }
        self.context = nil
        getdns_context_destroy(context)
    }

    @discardableResult
    func resolve(_ name: String, _ body: @escaping (Outcome) -> Void) -> getdns_transaction_t {
        let call = Unmanaged.passRetained(Call(calls, body))
        var number: getdns_transaction_t = 0
        let code = getdns_general(
            context, name, UInt16(GETDNS_RRTYPE_A), nil, call.toOpaque(), &number,
            { _, kind, response, call, _ in
                let call = Unmanaged<Call>.fromOpaque(call!).takeRetainedValue()
                call.calls.increment()
                let outcome = Outcome(kind, response)
                getdns_dict_destroy(response)
                call.body(outcome)
            })
        precondition(code == GETDNS_RETURN_GOOD, "getdns_general: \(code)")
        return number
    }

    func cancel(_ number: getdns_transaction_t) { getdns_cancel_callback(context, number) }

    private final class Call {
        let calls: Box<Int>
        let body: (Outcome) -> Void
        init(_ calls: Box<Int>, _ body: @escaping (Outcome) -> Void) { (self.calls, self.body) = (calls, body) }
    }
}

extension GetdnsResolver.Outcome {
    fileprivate init(_ kind: getdns_callback_type_t, _ response: OpaquePointer?) {
        switch kind {
        case GETDNS_CALLBACK_COMPLETE:
            var status: UInt32 = 0
            var code: UInt32 = 0
            var answers: OpaquePointer?
            var count = 0
            getdns_dict_get_int(response, "status", &status)
            if status == UInt32(GETDNS_RESPSTATUS_ALL_TIMEOUT) {
                self = .timedOut
                return
            }
            getdns_dict_get_int(response, "/replies_tree/0/header/rcode", &code)
            getdns_dict_get_list(response, "/replies_tree/0/answer", &answers)
            if answers != nil { getdns_list_get_length(answers, &count) }
            self = .reply(code: code, answers: count)
        case GETDNS_CALLBACK_TIMEOUT: self = .timedOut
        case GETDNS_CALLBACK_CANCEL: self = .cancelled
        default: self = .failed
        }
    }
}

private func check(_ code: getdns_return_t, _ call: String) throws {
    if code != GETDNS_RETURN_GOOD { throw GetdnsFailure(description: "\(call): \(code)") }
}

struct GetdnsFailure: Error, CustomStringConvertible { let description: String }
