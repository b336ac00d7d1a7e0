// The descriptor of a datagram socket.
//
// Lifecycle of the descriptor: opened by init, and closed when `end` was called and neither a call nor the source uses it any more, or with the
// object. The file of a Unix path is removed by `end`, while the socket is open, so that no other file can have its inode.

internal import CDatagrams
internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

final class DatagramDescriptor: Sendable {
    let number: Int32
    let kind: Int32
    let peer: RunLoop.SocketAddress?
    let localAddress: RunLoop.SocketAddress
    /// The file of a Unix path.
    private let file: (path: String, device: UInt64, inode: UInt64)?
    private let mark = ProcessMark()

    private struct Uses: Sendable {
        var count = 0
        var hasEnded = false
        var isClosed = false
        /// Somebody else has closed it, and the number may be another file's.
        var isForeign = false
    }
    private let uses = StreamLock(Uses())

    convenience init(boundTo address: RunLoop.SocketAddress, _ options: DatagramSocket.Options) throws(RunLoop.SourceError) {
        try self.init(kind: address.kind, local: address, peer: nil, options)
    }

    convenience init(
        connectedTo peer: RunLoop.SocketAddress, from local: RunLoop.SocketAddress?, _ options: DatagramSocket.Options
    ) throws(RunLoop.SourceError) {
        if let local, local.kind != peer.kind { throw .system(operation: "connect \(local) to \(peer)", errno: EAFNOSUPPORT) }
        try self.init(kind: peer.kind, local: local, peer: peer, options)
    }

    private init(
        kind: Int32, local: RunLoop.SocketAddress?, peer: RunLoop.SocketAddress?, _ options: DatagramSocket.Options
    ) throws(RunLoop.SourceError) {
        let nativeLocal = try local?.native()
        let nativePeer = try peer?.native()
        let number = try Self.open(kind, options)
        if var nativeLocal {
            let code = cdatagrams_bind(number, &nativeLocal)
            if code != 0 {
                Self.close(number)
                throw .system(operation: "bind \(local!)", errno: code)  // it has a native form
            }
        }
        file = local.flatMap(Self.file)
        if var nativePeer {
            let code = cdatagrams_connect(number, &nativePeer)
            if code != 0 {
                if let file { cplatform_unlink_bound_file(file.path, file.device, file.inode) }
                Self.close(number)
                throw .system(operation: "connect \(peer!)", errno: code)  // as above
            }
        }
        // A Unix socket without a name has no address.
        localAddress = RunLoop.SocketAddress(localOf: number) ?? .unix(path: "")
        (self.number, self.kind, self.peer) = (number, kind, peer)
    }

    private static func open(_ kind: Int32, _ options: DatagramSocket.Options) throws(RunLoop.SourceError) -> Int32 {
        var operation: UnsafePointer<CChar>?
        func open(_ interface: UnsafePointer<CChar>?) -> Int32 {
            var native = cdatagrams_options(
                receive_buffer: Int64(options.receiveBufferSize ?? -1), send_buffer: Int64(options.sendBufferSize ?? -1),
                shares_port: options.sharesPort, allows_broadcast: options.allowsBroadcast, ipv6_only: options.ipv6Only,
                multicast_loops: options.multicastLoops, multicast_interface: interface, multicast_hops: Int64(options.multicastHops))
            return cdatagrams_open(kind, &native, &operation)
        }
        let number = options.multicastInterface.map { $0.withCString { open($0) } } ?? open(nil)
        if number < 0 { throw .system(operation: operation.map { String(cString: $0) } ?? "socket", errno: -number) }
        return number
    }

    /// An abstract name, which begins with a zero byte, is no file.
    private static func file(of address: RunLoop.SocketAddress) -> (path: String, device: UInt64, inode: UInt64)? {
        guard case .unix(let path) = address, path.utf8.first != 0 else { return nil }
        var (device, inode) = (UInt64(0), UInt64(0))
        return cplatform_bound_file(path, &device, &inode) == 0 ? (path, device, inode) : nil
    }

    private static func close(_ number: Int32) {
        _ = EventLoopLibC.close(number)
    }

    var isOurs: Bool { mark.isOurs }

    deinit {
        guard isOurs else { return Self.close(number) }
        end()
    }

    // MARK: Uses

    /// Keeps the descriptor open until `endUse`. False after `end`.
    func beginUse() -> Bool {
        uses.withLock { uses in
            if uses.hasEnded { return false }
            uses.count += 1
            return true
        }
    }

    func endUse() {
        uses.withLock { $0.count -= 1 }
        closeIfUnused()
    }

    private func removeFile() {
        guard let file, isOurs else { return }
        cplatform_unlink_bound_file(file.path, file.device, file.inode)
    }

    /// Removes the socket's file, and closes the descriptor after the last use. `isForeign`: it has been closed by other code.
    func end(isForeign: Bool = false) {
        let isNew = uses.withLock { uses in
            defer { (uses.hasEnded, uses.isForeign) = (true, uses.isForeign || isForeign) }
            return !uses.hasEnded
        }
        if isNew { removeFile() }
        closeIfUnused()
    }

    private func closeIfUnused() {
        let closes = uses.withLock { uses in
            guard uses.hasEnded, uses.count == 0, !uses.isClosed else { return false }
            uses.isClosed = true
            return !uses.isForeign
        }
        if closes { Self.close(number) }
    }
}
