// libevent's DNS client on the event base of a loop.
//
// Lifecycle of the evdns base: made by `init`, freed by `free`. evdns calls the closure of each request once, or it is released by `free`.

import CLibevent
import EventLoop
import TestSupport

/// On the loop's thread only.
final class EvdnsClient {
    enum Outcome: Equatable {
        case addresses([UInt32])
        /// DNS_ERR_…
        case error(Int32)
    }

    private var dns: OpaquePointer?
    private var requests: [ObjectIdentifier: Unmanaged<Call>] = [:]
    /// How many closures of requests were called.
    let calls = Box(0)

    init(_ port: UInt16, on loop: RunLoop, _ mode: RunLoop.Mode, options: [(String, String)] = []) throws {
        // Without requests it has no events on the base, so that it does not keep the mode.
        dns = loop.withEventBase(forMode: mode) { evdns_base_new($0, EVDNS_BASE_DISABLE_WHEN_INACTIVE) }
        for (name, value) in [("max-timeouts:", "255")] + options {
            guard evdns_base_set_option(dns, name, value) == 0 else { throw SystemFailure("evdns_base_set_option \(name)") }
        }
        let code = withLoopback(port: port) { evdns_base_nameserver_sockaddr_add(dns, $0, $1, 0) }
        guard code == 0 else { throw SystemFailure("evdns_base_nameserver_sockaddr_add") }
    }

    /// - Parameter failing: call the closures of unfinished requests with DNS_ERR_SHUTDOWN in the next run.
    func free(failing: Bool = false) {
        if let dns { evdns_base_free(dns, failing ? 1 : 0) }
        dns = nil
        if failing { return }
        for call in requests.values { call.release() }
        requests = [:]
    }

    @discardableResult
    func resolve(_ name: String, _ body: @escaping (Outcome) -> Void) -> OpaquePointer? {
        let call = Unmanaged.passRetained(Call(self, body))
        requests[ObjectIdentifier(call.takeUnretainedValue())] = call
        return evdns_base_resolve_ipv4(
            dns, name, DNS_QUERY_NO_SEARCH,
            { result, _, count, _, addresses, call in
                let call = Unmanaged<Call>.fromOpaque(call!).takeRetainedValue()
                call.client.requests[ObjectIdentifier(call)] = nil
                call.client.calls.increment()
                guard result == DNS_ERR_NONE else { return call.body(.error(result)) }
                let words = UnsafeBufferPointer(start: addresses?.assumingMemoryBound(to: UInt32.self), count: Int(count))
                call.body(.addresses(words.map { UInt32(bigEndian: $0) }))
            }, call.toOpaque())
    }

    func cancel(_ request: OpaquePointer?) { evdns_cancel_request(dns, request) }

    private final class Call {
        let client: EvdnsClient
        let body: (Outcome) -> Void
        init(_ client: EvdnsClient, _ body: @escaping (Outcome) -> Void) { (self.client, self.body) = (client, body) }
    }
}
