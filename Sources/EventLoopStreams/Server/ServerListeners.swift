// The listening sockets of a server.

internal import CStreams
internal import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Makes the listeners of a server, which are not in their loops yet.
struct ServerListeners {
    typealias Accept = @Sendable (_ descriptor: Int32, _ listener: Int) -> Void

    let address: RunLoop.SocketAddress
    let sharesPort: Bool
    let label: String?
    let file: StaticString
    let line: UInt

    /// Makes `count` listeners, or one for a Unix socket. All or none.
    func make(_ count: Int, _ accept: @escaping Accept) throws(RunLoop.SourceError) -> [RunLoop.SocketSource] {
        // The first one has no SO_REUSEPORT, unless the port is to be shared: the kernel refuses it if any other socket listens on the
        // port, and from then on refuses the first one of every other server. So two servers that start at once cannot both succeed.
        var listeners = [try listener(address, sharesPort, 0, accept)]
        if case .unix = address { return listeners }
        if count == 1 { return listeners }
        if !sharesPort {
            let code = cstreams_share_port(listeners[0].descriptor)
            if code != 0 { throw .system(operation: "setsockopt(SO_REUSEPORT) \(address)", errno: code) }
        }
        let bound = listeners[0].localAddress ?? address
        for index in 1..<count { listeners.append(try listener(bound, true, index, accept)) }
        return listeners
    }

    private func listener(
        _ address: RunLoop.SocketAddress, _ reusePort: Bool, _ index: Int, _ accept: @escaping Accept
    ) throws(RunLoop.SourceError) -> RunLoop.SocketSource {
        do throws(RunLoop.SourceError) {
            return try RunLoop.SocketSource(listeningOn: address, reusePort: reusePort, label: label ?? "server", file: file, line: line) {
                _, descriptor, _ in accept(descriptor, index)
            }
        } catch {
            // With SO_REUSEADDR, two sockets may bind before either listens. Then listen(2) refuses the second one.
            if case .system("listen \(address)", EADDRINUSE) = error { throw .system(operation: "bind \(address)", errno: EADDRINUSE) }
            throw error
        }
    }
}
