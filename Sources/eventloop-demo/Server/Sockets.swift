// The sockets of the demo: listeners that share a port, and the clients' connections. Loopback only.
//
// Descriptors made here are non-blocking and close-on-exec, and belong to the caller.

import CLibevent
import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

enum Sockets {
    /// `count` listening sockets on one port. With SO_REUSEPORT the kernel distributes the connections among
    /// them, so that each server loop accepts its own.
    static func listeners(port: UInt16, count: Int) throws(DemoError) -> (descriptors: [Int32], port: UInt16) {
        if port != 0 {
            // Two processes of one user that both use SO_REUSEPORT silently share a port: a second copy of the
            // demo would answer half of the first one's clients. A listener without the option is refused if
            // another process listens there, so try that first.
            release(try listener(port: port, sharesPort: false))
        }
        var descriptors: [Int32] = []
        do throws(DemoError) {
            // For port 0 the kernel picks a free port, with or without SO_REUSEPORT.
            descriptors.append(try listener(port: port, sharesPort: true))
            let port = localPort(of: descriptors[0])
            while descriptors.count < count {
                descriptors.append(try listener(port: port, sharesPort: true))
            }
            return (descriptors, port)
        } catch {
            for descriptor in descriptors { release(descriptor) }
            throw error
        }
    }

    /// Starts a connection to the loopback port. It is writable once it is established or has failed.
    static func connecting(toPort port: UInt16) throws(DemoError) -> Int32 {
        let descriptor = try make()
        let result = withLoopback(port: port) { connect(descriptor, $0, $1) }
        guard result == 0 || errno == EINPROGRESS || errno == EINTR else {
            let reason = systemError()
            release(descriptor)
            throw DemoError(sentence: "a client could not connect to port \(port): \(reason)")
        }
        return descriptor
    }

    /// The error of an asynchronous connect, or another pending error of the socket; nil if there is none.
    static func pendingError(of descriptor: Int32) -> String? {
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) == 0 else { return systemError() }
        return code == 0 ? nil : String(cString: strerror(code))
    }

    /// The descriptor is closed afterwards, even after EINTR.
    static func release(_ descriptor: Int32) {
        _ = close(descriptor)
    }

    static func systemError() -> String { String(cString: strerror(errno)) }

    private static func listener(port: UInt16, sharesPort: Bool) throws(DemoError) -> Int32 {
        let descriptor = try make()
        // SO_REUSEADDR: connections of an earlier run in TIME_WAIT do not count as "in use".
        evutil_make_listen_socket_reuseable(descriptor)
        if sharesPort { evutil_make_listen_socket_reuseable_port(descriptor) }
        guard withLoopback(port: port, { bind(descriptor, $0, $1) }) == 0, listen(descriptor, SOMAXCONN) == 0 else {
            let error = refusal(port: port, code: errno)
            release(descriptor)
            throw error
        }
        return descriptor
    }

    private static func refusal(port: UInt16, code: Int32) -> DemoError {
        switch code {
        case EADDRINUSE:
            DemoError(sentence: "port \(port) is in use; pick another with --port, or let --port 0 pick a free one")
        case EACCES:
            DemoError(sentence: "port \(port) needs a privilege (ports below 1024 do); pick a higher one with --port")
        default:
            DemoError(sentence: "cannot listen on 127.0.0.1 port \(port): \(String(cString: strerror(code)))")
        }
    }

    private static func make() throws(DemoError) -> Int32 {
        let descriptor = socket(AF_INET, streamSocket, 0)
        guard descriptor >= 0 else { throw DemoError(sentence: "cannot make a socket: \(systemError())") }
        evutil_make_socket_nonblocking(descriptor)
        evutil_make_socket_closeonexec(descriptor)
        return descriptor
    }

    private static func localPort(of descriptor: Int32) -> UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutableBytes(of: &address) { bytes in
            getsockname(descriptor, bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), &length)
        }
        return UInt16(bigEndian: address.sin_port)
    }

    private static func withLoopback(port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return withUnsafeBytes(of: &address) { bytes in
            body(bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
        }
    }
}
