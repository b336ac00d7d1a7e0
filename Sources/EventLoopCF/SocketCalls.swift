// The system's calls for sockets. They take and return numbers and `CFData`, so that no other file depends on the C library.

internal import CPlatform
internal import EventLoopLibC

#if canImport(Glibc)
private let stream = Int32(SOCK_STREAM.rawValue)
private let datagram = Int32(SOCK_DGRAM.rawValue)
private let packets = Int32(SOCK_SEQPACKET.rawValue)
private let closeOnExec = Int32(SOCK_CLOEXEC.rawValue)
private let withoutWaiting = Int32(MSG_DONTWAIT)
private let withoutSignal = Int32(MSG_NOSIGNAL)
private let tcp = Int32(IPPROTO_TCP)
private let udp = Int32(IPPROTO_UDP)

/// `recv(2)`: MSG_TRUNC returns "the real length of the packet [...], even when it was longer than the passed buffer".
private func nextSize(_ descriptor: Int32) -> Int { recv(descriptor, nil, 0, withoutWaiting | Int32(MSG_PEEK) | Int32(MSG_TRUNC)) }
#elseif canImport(Musl)
private let (stream, datagram, packets) = (SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET)
private let closeOnExec = SOCK_CLOEXEC
private let (withoutWaiting, withoutSignal) = (MSG_DONTWAIT, MSG_NOSIGNAL)
private let (tcp, udp) = (IPPROTO_TCP, IPPROTO_UDP)

/// `recv(2)`: MSG_TRUNC returns "the real length of the packet [...], even when it was longer than the passed buffer".
private func nextSize(_ descriptor: Int32) -> Int { recv(descriptor, nil, 0, withoutWaiting | MSG_PEEK | MSG_TRUNC) }
#else
private let (stream, datagram, packets) = (SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET)
private let closeOnExec: Int32 = 0
private let (withoutWaiting, withoutSignal) = (MSG_DONTWAIT, Int32(0))
private let (tcp, udp) = (IPPROTO_TCP, IPPROTO_UDP)

/// `getsockopt(2)`, SO_NREAD: of a socket of datagrams, "the amount of data in the first packet".
private func nextSize(_ descriptor: Int32) -> Int {
    var bytes: Int32 = 0
    var size = socklen_t(MemoryLayout<Int32>.size)
    return getsockopt(descriptor, SOL_SOCKET, SO_NREAD, &bytes, &size) == 0 ? Int(bytes) : 0
}
#endif

enum SocketCalls {
    // MARK: The descriptor

    static func close(_ descriptor: Int32) { cplatform_close(descriptor) }

    static func isBlocking(_ descriptor: Int32) -> Bool { fcntl(descriptor, F_GETFL) & O_NONBLOCK == 0 }

    static func setBlocking(_ descriptor: Int32, _ blocks: Bool) {
        let flags = fcntl(descriptor, F_GETFL)
        if flags >= 0 { _ = fcntl(descriptor, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) }
    }

    /// A new socket, close-on-exec; -1 if there is none. Zeros are replaced by Core Foundation's defaults.
    static func makeSocket(_ family: Int32, _ type: Int32, _ number: Int32) -> Int32 {
        let family = family <= 0 ? PF_INET : family
        var (type, number) = (type, number)
        // On Apple's systems, Core Foundation has a default for Unix sockets, too.
        if type <= 0 && (family == PF_INET || family == PF_UNIX) { type = stream }
        if family == PF_INET && number <= 0 {
            if type == stream { number = tcp }
            if type == datagram { number = udp }
        }
        let made = socket(family, type | closeOnExec, number)
        if closeOnExec == 0 && made >= 0 { _ = fcntl(made, F_SETFD, FD_CLOEXEC) }
        return made
    }

    static func kind(_ descriptor: Int32) -> NativeSocket.Kind {
        var type: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 else { return .other }
        return type == stream || type == packets ? .connection : .messages
    }

    /// Not a stream, and not UDP, whose messages have at most 65,507 bytes.
    static func hasLongMessages(_ descriptor: Int32) -> Bool {
        var type: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0, type != stream else { return false }
        var address = sockaddr_storage()
        size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let isKnown = withUnsafeMutableBytes(of: &address) { bytes in
            getsockname(descriptor, bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), &size) == 0
        }
        return !isKnown || ![PF_INET, PF_INET6].contains(Int32(address.ss_family))
    }

    /// The bytes of the next message; zero or less if there is none.
    static func sizeOfMessage(_ descriptor: Int32) -> Int {
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        return nextSize(descriptor)
    }

    /// The pending error, which the socket forgets.
    static func takeError(_ descriptor: Int32) -> Int32 {
        var error: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : 0
    }

    // MARK: Readiness

    /// No cancellation point: the caller may hold a lock.
    private static func ready(_ descriptor: Int32, _ events: Int32, _ milliseconds: Int32) -> Int32 {
        var request = pollfd(fd: descriptor, events: Int16(events), revents: 0)
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        return poll(&request, 1, milliseconds) > 0 ? Int32(request.revents) : 0
    }

    /// Whether a stream can be read now, and written to. Nil if it is neither connected nor connecting: Linux reports a hang-up then (tcp_poll,
    /// unix_poll), and the end of the input besides if it once was connected.
    static func readiness(_ descriptor: Int32) -> (reads: Bool, writes: Bool)? {
        let ready = ready(descriptor, Int32(POLLIN | POLLOUT), 0)
        if ready & Int32(POLLHUP) != 0 && ready & Int32(POLLIN | POLLERR) == 0 { return nil }
        let isBroken = ready & Int32(POLLHUP | POLLERR) != 0
        return (isBroken || ready & Int32(POLLIN) != 0, isBroken || ready & Int32(POLLOUT) != 0)
    }

    /// Both directions have ended, as after an attempt that failed.
    static func hasHungUp(_ descriptor: Int32) -> Bool { ready(descriptor, Int32(POLLIN), 0) & Int32(POLLHUP) != 0 }

    /// Also returns true after an error, and for a socket that is closed. Returns false after the deadline.
    static func waitUntilWritable(_ descriptor: Int32, _ deadline: ContinuousClock.Instant?) -> Bool {
        while true {  // ends: when the socket is writable, or at the deadline
            // In slices, so that a long timeout fits.
            let left = deadline.map { ContinuousClock.now.duration(to: $0) / .milliseconds(1) } ?? 1e9
            if ready(descriptor, Int32(POLLOUT), Int32(min(max(left.rounded(.up), 0), 1e6))) != 0 { return true }
            if left <= 0 { return false }
        }
    }

    // MARK: Data

    /// A count or a negative errno, and the sender's address if there is one. No cancellation point: the caller has a reference to the descriptor,
    /// which a thread that ended here would keep.
    static func receive(_ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer) -> (count: Int, from: CFData?) {
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        var count = 0
        let sender = addressFilled { address, size in
            repeat {  // ends: with an outcome
                count = recvfrom(descriptor, buffer.baseAddress, buffer.count, withoutWaiting, address, size)
            } while count < 0 && errno == EINTR
            if count < 0 { count = -Int(errno) }
            return count >= 0
        }
        return (count, sender)
    }

    /// The number of bytes that were sent without waiting, or a negative errno.
    static func send(_ descriptor: Int32, _ bytes: UnsafePointer<UInt8>, _ count: Int, _ address: CFData?) -> Int {
        while true {  // ends: with an outcome
            let sent =
                if let address, address.count > 0 {
                    address.withSocketAddress { sendto(descriptor, bytes, count, withoutWaiting | withoutSignal, $0, $1) }
                } else {
                    EventLoopLibC.send(descriptor, bytes, count, withoutWaiting | withoutSignal)
                }
            if sent >= 0 { return sent }
            if errno != EINTR { return -Int(errno) }
        }
    }

    /// Whether a negative errno says that a call without waiting would have to wait.
    static func wouldWait(_ result: Int) -> Bool { result == -Int(EAGAIN) || result == -Int(EWOULDBLOCK) }

    // MARK: Connections

    /// What `connect` returns while it connects.
    static var inProgress: Int32 { EINPROGRESS }

    /// 0, or an errno.
    static func connect(_ descriptor: Int32, _ address: CFData) -> Int32 {
        var wasInterrupted = false
        while true {  // ends: with an outcome
            if address.withSocketAddress({ systemConnect(descriptor, $0, $1) }) == 0 { return 0 }
            switch errno {
            // connect(2): the attempt of a TCP socket goes on after a signal, and another call waits for it. A Unix socket that waited for
            // room in the listener's queue has made no attempt.
            case EINTR: wasInterrupted = true
            case EALREADY where wasInterrupted: return EINPROGRESS
            case EISCONN where wasInterrupted: return 0
            case let error: return error
            }
        }
    }

    /// Has a stream forget a failed attempt, so that it can connect again (connect(2), AF_UNSPEC).
    static func forgetAttempt(_ descriptor: Int32) {
        var none = sockaddr()
        none.sa_family = sa_family_t(AF_UNSPEC)
        _ = systemConnect(descriptor, &none, socklen_t(MemoryLayout<sockaddr>.size))
    }

    /// Binds, and listens if the socket can. Returns false if it cannot bind.
    static func bind(_ descriptor: Int32, _ address: CFData) -> Bool {
        guard address.withSocketAddress({ systemBind(descriptor, $0, $1) }) == 0 else { return false }
        // As many waiting connections as in Core Foundation. A socket of datagrams refuses.
        _ = listen(descriptor, 256)
        return true
    }

    /// Accepts a connection, close-on-exec. No cancellation point, as `receive`.
    static func accept(_ descriptor: Int32) -> NativeSocket.Accepted {
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        var (connection, error) = (Int32(-1), Int32(0))
        let peer = addressFilled { address, size in
            connection = cplatform_accept_native(descriptor, address, size)
            error = errno
            return connection >= 0
        }
        if connection >= 0 { return .connection(connection, from: peer ?? .empty) }
        switch error {
        case EMFILE, ENFILE, ENOBUFS, ENOMEM: return .exhausted
        case EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP: return .notListening
        // The connection failed in the queue, or somebody else accepted it.
        default: return .nothing
        }
    }

    // MARK: Addresses

    /// The socket's own address; nil if it has none.
    static func address(_ descriptor: Int32) -> CFData? { addressFilled { getsockname(descriptor, $0, $1) == 0 } }

    static func peerAddress(_ descriptor: Int32) -> CFData? { addressFilled { getpeername(descriptor, $0, $1) == 0 } }

    /// What `fill` writes; nil if it returns false, or writes nothing.
    private static func addressFilled(
        _ fill: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Bool
    ) -> CFData? {
        var storage = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return withUnsafeMutableBytes(of: &storage) { bytes in
            guard fill(bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), &size), size > 0 else { return nil }
            return CFData(UnsafeRawBufferPointer(rebasing: bytes[..<min(Int(size), bytes.count)]))
        }
    }
}

extension CFData {
    /// CFData's bytes are aligned for every address.
    fileprivate func withSocketAddress<R>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> R) -> R {
        withExtendedLifetime(self) {
            body(UnsafeRawPointer(bytes).assumingMemoryBound(to: sockaddr.self), socklen_t(clamping: count))
        }
    }
}

// These have the names of members above.
private func systemConnect(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Int32 {
    connect(descriptor, address, size)
}

private func systemBind(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Int32 {
    bind(descriptor, address, size)
}
