// The sockets on which the server listens: one for each loop, all on one port of the loopback.

import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

enum Listeners {
    /// `count` listening sockets, for evhttp, which closes them. With SO_REUSEPORT the kernel distributes the connections among them, so that
    /// each server loop accepts its own.
    static func make(port: UInt16, count: Int) throws(DemoError) -> (descriptors: [Int32], port: UInt16) {
        // Two processes of one user that both use SO_REUSEPORT silently share a port: a second copy of the demo would answer half of the
        // first one's clients. A listener without the option is refused if another process listens there, so try that first.
        if port != 0 { release(try listen(port: port, reusePort: false).descriptor) }
        var descriptors: [Int32] = []
        var port = port
        do throws(DemoError) {
            while descriptors.count < count {
                let listener = try listen(port: port, reusePort: true)
                descriptors.append(listener.descriptor)
                // For port 0 the kernel picks a free one.
                port = listener.port
            }
            return (descriptors, port)
        } catch {
            descriptors.forEach(release)
            throw error
        }
    }

    /// The descriptor is closed afterwards, even after EINTR.
    static func release(_ descriptor: Int32) { _ = close(descriptor) }

    /// A copy of a source's socket. The socket listens as long as the copy is open.
    private static func listen(port: UInt16, reusePort: Bool) throws(DemoError) -> (descriptor: Int32, port: UInt16) {
        do {
            let source = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: port), reusePort: reusePort) { _, _, _ in }
            defer { source.invalidate() }
            let copy = fcntl(source.descriptor, F_DUPFD_CLOEXEC, 0)
            guard copy >= 0, case .ipv4(_, let port) = source.localAddress else {
                throw DemoError(sentence: "cannot make a socket: \(String(cString: strerror(errno)))")
            }
            return (copy, port)
        } catch {
            throw error as? DemoError ?? refusal(port: port, error)
        }
    }

    private static func refusal(port: UInt16, _ error: any Error) -> DemoError {
        switch error as? RunLoop.SourceError {
        case .system(_, EADDRINUSE):
            DemoError(sentence: "port \(port) is in use; pick another with --port, or let --port 0 pick a free one")
        case .system(_, EACCES):
            DemoError(sentence: "port \(port) needs a privilege (ports below 1024 do); pick a higher one with --port")
        default: DemoError(sentence: "cannot listen on 127.0.0.1 port \(port): \(error)")
        }
    }
}
