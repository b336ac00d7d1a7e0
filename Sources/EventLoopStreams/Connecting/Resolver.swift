// Finds the addresses of a host: the system's resolver, or a test's.

internal import CStreams
package import EventLoop

/// Finds addresses without blocking the caller. A value, so that tests can pass their own.
package struct Resolver: Sendable {
    package typealias Answer = @Sendable (Result<[RunLoop.SocketAddress], StreamError>) -> Void

    /// Calls `answer` once, on any thread, possibly before it returns. Returns what cancels the lookup; then `answer` may not be called.
    package let start: @Sendable (_ host: String, _ port: UInt16, _ answer: @escaping Answer) -> @Sendable () -> Void

    package init(
        _ start: @escaping @Sendable (_ host: String, _ port: UInt16, _ answer: @escaping Answer) -> @Sendable () -> Void
    ) { self.start = start }

    /// getaddrinfo(3).
    package static let system = Resolver { host, port, answer in
        // Lookups are shared by name, so the port is set afterwards.
        let answerWithPort: Answer = { found in answer(found.map { addresses in addresses.map { $0.withPort(port) } }) }
        if let known = SystemLookup.withoutThread(host) {
            answerWithPort(known)
            return {}
        }
        return LookupPool.shared.lookUp(host, { SystemLookup.run(host) }, answerWithPort)
    }
}

extension RunLoop.SocketAddress {
    /// Unix sockets have none.
    package func withPort(_ port: UInt16) -> Self {
        switch self {
        case .ipv4(let host, _): .ipv4(host: host, port: port)
        case .ipv6(let host, _): .ipv6(host: host, port: port)
        case .unix: self
        }
    }
}

extension LookupPool.Refusal: CustomStringConvertible {
    var description: String {
        switch self {
        case .isFull(let count): "\(count) other lookups wait already"
        case .noThread(let errno):
            "no thread could be started for the lookup: \(SystemLookup.sentence { cstreams_error_text(errno, $0, $1) })"
        }
    }
}

/// One call of getaddrinfo. The addresses have no port.
enum SystemLookup {
    /// NI_MAXHOST without its zero byte. The names of DNS have at most 254.
    static let longestHost = 1024

    /// The answer for a numeric host, or for one that no lookup can find. Nil for the others. Does not block.
    static func withoutThread(_ host: String) -> LookupResult? {
        if let reason = flaw(of: host) { return .failure(.hostNotFound(host: host, reason: reason)) }
        var found = Addresses()
        let code = found.fill(host, onlyNumeric: true).code
        if code != 0 && cstreams_is_no_numeric_host(code) { return nil }
        return code == 0 && !found.list.isEmpty ? .success(found.list) : nil
    }

    private static func flaw(of host: String) -> String? {
        if host.isEmpty { return "the name is empty" }
        if host.utf8.contains(0) { return "the name contains a zero byte" }
        if host.utf8.count > longestHost { return "the name has more than \(longestHost) bytes" }
        return nil
    }

    /// Blocks.
    static func run(_ host: String) -> LookupResult {
        var found = Addresses()
        let (code, errno) = found.fill(host, onlyNumeric: false)
        if code != 0 {
            let reason = sentence { cstreams_lookup_error(code, errno, $0, $1) }
            return .failure(
                cstreams_says_no_such_host(code)
                    ? .hostNotFound(host: host, reason: reason) : .nameServiceFailed(host: host, reason: reason))
        }
        if found.list.isEmpty { return .failure(.hostNotFound(host: host, reason: "the name has no IPv4 or IPv6 address")) }
        return .success(found.list)
    }

    /// A sentence of the C library.
    fileprivate static func sentence(_ write: (UnsafeMutablePointer<CChar>, Int32) -> Void) -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { text in
            write(text.baseAddress!, Int32(text.count))  // the capacity is not zero
            return String(cString: text.baseAddress!)
        }
    }

    /// In getaddrinfo's order (RFC 6724), each once.
    private struct Addresses {
        var list: [RunLoop.SocketAddress] = []
        private var known: Set<RunLoop.SocketAddress> = []

        mutating func fill(_ host: String, onlyNumeric: Bool) -> (code: Int32, errno: Int32) {
            var errno: Int32 = 0
            let code = withUnsafeMutablePointer(to: &self) { addresses in
                cstreams_look_up(host, onlyNumeric, &errno, addresses) { context, isIPv6, host in
                    // Both are what this call passed, or a C string.
                    context!.assumingMemoryBound(to: Addresses.self).pointee.append(String(cString: host!), isIPv6)
                }
            }
            return (code, errno)
        }

        private mutating func append(_ host: String, _ isIPv6: Bool) {
            let address: RunLoop.SocketAddress = isIPv6 ? .ipv6(host: host, port: 0) : .ipv4(host: host, port: 0)
            if known.insert(address).inserted { list.append(address) }
        }
    }
}
