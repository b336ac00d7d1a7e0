// Whether a client that sends no more is still there.
//
// The end of its output says only that it sends no more: it may have closed its socket, or wait for the answer. Unix sockets report the two
// differently. On TCP, a socket that is closed acknowledges the kernel's probes like one that is half-closed, as long as it is remembered (a minute on
// Linux), and answers nothing but data with a reset. So such a client gets data that means nothing: `100 Continue`, which a client of
// HTTP/1.1 must expect and ignore at any time before its answer (RFC 9110, 15.2).

#if HTTP

internal import EventLoopLibC
internal import EventLoopStreams

enum ClientProbe {
    /// How often the result is looked at.
    static var interval: Duration { .milliseconds(250) }
    /// From the end of its output to the first probe, so that a client that half-closes sees none if its answer comes soon.
    static var delay: Duration { .seconds(1) }
    /// Between two of them: the client may go later.
    static var period: Duration { .seconds(5) }

    static var bytes: String { "HTTP/1.1 100 Continue\r\n\r\n" }

    /// For clients that cannot be sent anything: the kernel asks once a second, which finds those that are not remembered any more. One that cannot
    /// be reached counts as gone after a minute, and not before: it may wait for its answer while its network is away for some seconds.
    static func keepAlive(_ stream: ByteStream) {
        stream.withDescriptor { descriptor in
            // Fails on Unix sockets, which need no probe.
            set(descriptor, level: SOL_SOCKET, SO_KEEPALIVE, 1)
            #if canImport(Darwin)
            set(descriptor, level: IPPROTO_TCP, TCP_KEEPALIVE, 1)
            #else
            set(descriptor, level: Int32(IPPROTO_TCP), TCP_KEEPIDLE, 1)
            #endif
            set(descriptor, level: Int32(IPPROTO_TCP), TCP_KEEPINTVL, 1)
            set(descriptor, level: Int32(IPPROTO_TCP), TCP_KEEPCNT, 60)
        }
    }

    private static func set(_ descriptor: Int32, level: Int32, _ name: Int32, _ value: Int32) {
        var value = value
        setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<Int32>.size))
    }

    /// Whether the connection is closed in both directions, or has failed. True if the stream has ended.
    static func isGone(_ stream: ByteStream) -> Bool {
        let events = stream.withDescriptor { descriptor in
            var poller = pollfd(fd: descriptor, events: 0, revents: 0)
            poll(&poller, 1, 0)
            return Int32(poller.revents)
        }
        guard let events else { return true }
        return events & Int32(POLLHUP | POLLERR) != 0
    }
}

#endif
