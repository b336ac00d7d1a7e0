// Which address is tried when: Happy Eyeballs (RFC 8305), without sockets, timers or a clock.

internal import EventLoop
internal import EventLoopLibC

/// Decides when to try which of several addresses.
///
/// Addresses are tried in turn, each some time after the one before, or at once when an attempt has failed. The first connection wins.
struct ConnectionRace: Sendable {
    /// The Connection Attempt Delay that RFC 8305 (section 5) recommends.
    static let delay = Duration.milliseconds(250)

    /// What to do next.
    enum Step: Sendable, Equatable {
        /// Start an attempt to `addresses[attempt]`. If `delays`, call `delayHasPassed` after the delay from now, and not earlier;
        /// otherwise, never.
        case start(attempt: Int, delays: Bool)
        /// Wait for the attempts in progress, and for a delay that runs.
        case wait
        /// All attempts have failed.
        case fail(RunLoop.SourceError)
    }

    let addresses: [RunLoop.SocketAddress]
    /// How many attempts were started.
    private var started = 0
    private var inProgress = 0
    private var errors: [RunLoop.SourceError?]
    private var isClosed = false

    /// `addresses`: in order of preference; not empty.
    init(_ addresses: [RunLoop.SocketAddress]) {
        precondition(!addresses.isEmpty, "a race needs an address")
        self.addresses = Self.interleaved(addresses)
        errors = Array(repeating: nil, count: addresses.count)
    }

    mutating func begin() -> Step { startNext() }

    mutating func delayHasPassed() -> Step { startNext() }

    mutating func attempt(_ attempt: Int, failedWith error: RunLoop.SourceError) -> Step {
        errors[attempt] = error
        inProgress -= 1
        return startNext()
    }

    /// No attempt starts any more. Whether none is in progress.
    mutating func close() -> Bool {
        isClosed = true
        return inProgress == 0
    }

    private mutating func startNext() -> Step {
        if started < addresses.count && !isClosed {
            started += 1
            inProgress += 1
            return .start(attempt: started - 1, delays: started < addresses.count)
        }
        return inProgress > 0 ? .wait : .fail(mostTelling)
    }

    /// The error of the most preferred address from which an answer came, or at least not none: a machine without IPv6 has no route to the
    /// first address of most hosts, which says nothing about the host. If there is no such error, the first one.
    private var mostTelling: RunLoop.SourceError {
        let errors = errors.compactMap(\.self)
        return errors.first { !$0.isWithoutRoute } ?? errors[0]  // at least one attempt has failed
    }

    /// The families in turn, beginning with the family of the first address (RFC 8305, section 4). Each family keeps its order.
    static func interleaved(_ addresses: [RunLoop.SocketAddress]) -> [RunLoop.SocketAddress] {
        guard let first = addresses.first else { return [] }
        let same = addresses.filter { $0.isIPv6 == first.isIPv6 }
        let other = addresses.filter { $0.isIPv6 != first.isIPv6 }
        var result: [RunLoop.SocketAddress] = []
        for index in 0..<max(same.count, other.count) {
            if index < same.count { result.append(same[index]) }
            if index < other.count { result.append(other[index]) }
        }
        return result
    }
}

extension RunLoop.SocketAddress {
    fileprivate var isIPv6: Bool { if case .ipv6 = self { true } else { false } }
}

extension RunLoop.SourceError {
    /// Whether this machine cannot send to such an address at all.
    fileprivate var isWithoutRoute: Bool {
        guard case .system(_, let errno) = self else { return false }
        return [ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT, ENETDOWN].contains(errno)
    }
}
