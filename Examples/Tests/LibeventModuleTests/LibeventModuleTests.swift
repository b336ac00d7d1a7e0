// The module CLibevent (docs/c-libraries.md): a program that depends on the product calls every part of libevent, without a module map of
// its own. Each test uses one header of libevent; a header that the module lacks fails the build of this target.

import CLibevent
import EventLoop
import TestSupport
import Testing

@Suite(.bounded) struct LibeventModuleTests {
    @Test func `event2/event.h`() throws {
        let method = try onBase { base in String(cString: event_base_get_method(base)) }
        #expect(!method.isEmpty)
    }

    @Test func `event2/util.h and fd_set`() {
        var bytes = [UInt8](repeating: 0, count: 16)
        evutil_secure_rng_get_bytes(&bytes, bytes.count)
        // The build failed here when the module did not agree with Glibc about this structure.
        #expect(MemoryLayout<fd_set>.size >= 128)
        #expect(bytes.count == 16)
    }

    @Test func `event2/buffer.h`() throws {
        let buffer = try #require(evbuffer_new())
        evbuffer_add(buffer, "four", 4)
        #expect(evbuffer_get_length(buffer) == 4)
        evbuffer_free(buffer)
    }

    @Test func `event2/bufferevent.h`() throws {
        let sent = try onBase { base in
            var pair: [OpaquePointer?] = [nil, nil]
            guard bufferevent_pair_new(base, 0, &pair) == 0, let near = pair[0], let far = pair[1] else { return -1 }
            bufferevent_enable(far, Int16(EV_READ))
            bufferevent_write(near, "four", 4)
            let loop = RunLoop.current
            _ = loop.run(for: .zero)
            let count = evbuffer_get_length(bufferevent_get_input(far))
            bufferevent_free(near)
            bufferevent_free(far)
            _ = loop.run(for: .zero)
            return count
        }
        #expect(sent == 4)
    }

    @Test func `event2/listener.h`() throws {
        let isBound = try onBase { base in
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            let listener = withUnsafeBytes(of: &address) { bytes in
                evconnlistener_new_bind(
                    base, { _, descriptor, _, _, _ in evutil_closesocket(descriptor) }, nil,
                    UInt32(LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC), 1,
                    bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), Int32(bytes.count))
            }
            guard let listener else { return false }
            defer { evconnlistener_free(listener) }
            return evconnlistener_get_fd(listener) >= 0
        }
        #expect(isBound)
    }

    @Test func `event2/http.h`() throws {
        let isMade = try onBase { base in
            guard let http = evhttp_new(base) else { return false }
            evhttp_set_timeout(http, 5)
            evhttp_free(http)
            return true
        }
        #expect(isMade)
    }

    @Test func `event2/keyvalq_struct.h`() {
        var parameters = evkeyvalq()
        #expect(evhttp_parse_query_str("name=value", &parameters) == 0)
        #expect(evhttp_find_header(&parameters, "name").map { String(cString: $0) } == "value")
        evhttp_clear_headers(&parameters)
    }

    @Test func `event2/dns.h`() throws {
        let count = try onBase { base in
            guard let dns = evdns_base_new(base, 0) else { return -1 }
            evdns_base_nameserver_ip_add(dns, "127.0.0.1:53")
            defer { evdns_base_free(dns, 0) }
            return Int(evdns_base_count_nameservers(dns))
        }
        #expect(count == 1)
    }

    @Test func `event2/dns_struct.h`() {
        let request = evdns_server_request()
        #expect(request.nquestions == 0)
    }

    @Test func `event2/tag.h`() throws {
        let buffer = try #require(evbuffer_new())
        evtag_marshal_int(buffer, 7, 42)
        var number: UInt32 = 0
        #expect(evtag_unmarshal_int(buffer, 7, &number) >= 0)
        #expect(number == 42)
        evbuffer_free(buffer)
    }

    @Test func `event2/rpc.h`() throws {
        let isMade = try onBase { base in
            guard let http = evhttp_new(base) else { return false }
            defer { evhttp_free(http) }
            guard let rpc = evrpc_init(http) else { return false }
            evrpc_free(rpc)
            return true
        }
        #expect(isMade)
    }
}

/// Calls `body` with the base of a loop, on a thread of its own.
private func onBase<R: Sendable>(_ body: @escaping @Sendable (OpaquePointer) throws -> R) throws -> R {
    try onFreshThread { loop in try loop.withEventBase { try body($0) } }
}
