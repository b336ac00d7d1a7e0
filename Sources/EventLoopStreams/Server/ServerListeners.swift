// The listening sockets of a server.

internal import CStreams
internal import EventLoop
internal import EventLoopLibC

/// Makes the listeners of a server, which are not in their loops yet.
struct ServerListeners {
    typealias Accept = @Sendable (_ connection: IncomingConnection, _ listener: Int) -> Void

    let address: RunLoop.SocketAddress
    let sharesPort: Bool
    let backlog: Int32
    let ipv6Only: Bool
    let label: String?
    let file: StaticString
    let line: UInt

    /// Makes `count` listeners, or one for a Unix socket. All or none.
    func make(_ count: Int, _ accept: @escaping Accept) throws(RunLoop.SourceError) -> [RunLoop.SocketSource] {
        // The first one has no SO_REUSEPORT, unless the port is to be shared: the kernel refuses it if any other socket listens on the
        // port, and from then on refuses the first one of every other server. So two servers that start at once cannot both succeed.
        var listeners = [try listener(address, sharesPort, 0, accept)]
        if case .unix = address {
            // Its connections inherit that.
            cstreams_refuse_descriptors(listeners[0].descriptor)
            return listeners
        }
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
            return try RunLoop.SocketSource(
                listeningOn: address, backlog: backlog, reusePort: reusePort, ipv6Only: ipv6Only, label: label ?? "server", file: file,
                line: line
            ) {
                _, descriptor, _ in accept(.descriptor(descriptor), index)
            }
        } catch {
            // With SO_REUSEADDR, two sockets may bind before either listens. Then listen(2) refuses the second one.
            if case .system("listen \(address)", EADDRINUSE) = error { throw .system(operation: "bind \(address)", errno: EADDRINUSE) }
            throw error
        }
    }

    /// Takes over sockets that listen already, all or none. They are closed in any case.
    static func adopt(
        _ descriptors: [Int32], label: String?, file: StaticString, line: UInt, _ accept: @escaping Accept
    ) throws(RunLoop.SourceError) -> [RunLoop.SocketSource] {
        var listeners: [RunLoop.SocketSource] = []
        do throws(RunLoop.SourceError) {
            if descriptors.isEmpty { throw .system(operation: "adopting an empty list of listeners", errno: EINVAL) }
            for (index, descriptor) in descriptors.enumerated() {
                if descriptors[..<index].contains(descriptor) { throw .badDescriptor(descriptor) }
                listeners.append(
                    try RunLoop.SocketSource(adoptingListener: descriptor, label: label ?? "server", file: file, line: line) {
                        _, descriptor, _ in accept(.descriptor(descriptor), index)
                    })
            }
            return listeners
        } catch {
            for listener in listeners { listener.invalidate() }
            // Each once: the number may be another file's afterwards.
            for descriptor in Set(descriptors.dropFirst(listeners.count)).subtracting(descriptors.prefix(listeners.count)) {
                DescriptorSide.closeUnused(descriptor)
            }
            throw error
        }
    }
}
