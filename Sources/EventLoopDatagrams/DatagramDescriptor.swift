// The descriptor of a datagram socket.
//
// Lifecycle of the source: made by `open`, ends with the loop, and then releases its handler, which retains the core and with it this object.
//
// Lifecycle of the descriptor: opened by init, and closed when `end` was called and neither a call nor the source uses it any more, or with the
// object. The file of a Unix path is removed by `end`, while the socket is open, so that no other file can have its inode.

internal import CDatagrams
internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
internal import Synchronization

final class DatagramDescriptor: DatagramTransport {
    let number: Int32
    let kind: Int32
    let peer: RunLoop.SocketAddress?
    let localAddress: RunLoop.SocketAddress
    private let nativePeer: NativeAddress?
    private let file: BoundFile?
    private let mark = ProcessMark()
    /// The descriptor has been closed, by the last use or by other code, and the number may be another file's. Beside the lock, which only the
    /// process that made it takes.
    private let isGone = Atomic<Bool>(false)

    private struct Uses: Sendable {
        var count = 0
        var hasEnded = false
        var source: RunLoop.DescriptorSource?
        /// Whether the kernel cuts messages into datagrams here.
        var segments: Bool
    }
    private let uses: LoopLock<Uses>

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
        let nativeLocal = try local?.nativeFromRoot()
        nativePeer = try (peer?.nativeFromRoot()).map(NativeAddress.init)
        let path = local.flatMap(BoundFile.absolutePath)
        let number = try Self.open(kind, options)
        if var nativeLocal {
            let code = cdatagrams_bind(number, &nativeLocal)
            if code != 0 {
                cplatform_close(number)
                throw .system(operation: "bind \(local!)", errno: code)  // it has a native form
            }
        }
        file = BoundFile(path)
        if let nativePeer {
            let code = cdatagrams_connect(number, nativePeer.pointer)
            if code != 0 {
                file?.remove()
                cplatform_close(number)
                throw .system(operation: "connect \(peer!)", errno: code)  // as above
            }
        }
        // A Unix socket without a name has no address.
        localAddress = RunLoop.SocketAddress(localOf: number) ?? .unix(path: "")
        (self.number, self.kind, self.peer) = (number, kind, peer)
        uses = LoopLock(Uses(segments: kind != Int32(CPLATFORM_UNIX) && cdatagrams_has_segments(number)))
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

    var isOurs: Bool { mark.isOurs }

    deinit {
        if isOurs { return end(isForeign: false) }
        // The child's copy.
        if !isGone.load(ordering: .relaxed) { cplatform_close(number) }
    }

    // MARK: On the loop

    func open(
        for core: DatagramCore, on loop: RunLoop, mode: RunLoop.Mode, label: String, file: StaticString, line: UInt
    ) throws(RunLoop.SourceError) {
        _ = beginUse()  // the source's
        let source: RunLoop.DescriptorSource
        do throws(RunLoop.SourceError) {
            source = try RunLoop.DescriptorSource(descriptor: number, events: .read, label: label, file: file, line: line) { _, events in
                core.readyForDatagrams(events)
            }
        } catch {
            didLeaveLoop(isForeign: false)
            throw error
        }
        source.endWithLoop()
        uses.withLock { $0.source = source }
        guard loop.add(source, forMode: mode) else {
            source.invalidate()
            didLeaveLoop(isForeign: false)
            throw .loopEnded
        }
        source.onInvalidation { source in core.transportDidEnd(source.failure) }
    }

    /// Under the lock of the socket.
    func setInterest(_ events: RunLoop.DescriptorSource.Events) { uses.withLock { $0.source }?.setEventsWithoutCallout(events) }

    func close() { /* DOES CALLOUT */
        end(isForeign: false)
        uses.withLock { $0.source }?.invalidate()
    }

    func didLeaveLoop(isForeign: Bool) {
        end(isForeign: isForeign)
        endUse()
    }

    // MARK: Datagrams

    /// For a Unix socket without a peer the kernel reports only the room of the socket itself.
    var reportsRoom: Bool { kind != Int32(CPLATFORM_UNIX) || peer != nil }

    var drops: UInt32? { UInt32(exactly: cdatagrams_drops(number)) }

    /// The kernel delivers.
    var deliversLater: Bool { false }
    func deliverSent() {}

    func receive(upTo maximumSize: Int, into collector: inout DatagramCollector) -> Int32 {
        withUnsafeMutablePointer(to: &collector) { collector in
            cdatagrams_receive(number, maximumSize, collector) { context, bytes, count, isTruncated, peer in
                context!.assumingMemoryBound(to: DatagramCollector.self).pointee.take { known in  // as `cdatagrams_receive` passes them
                    Datagram(
                        bytes: [UInt8](UnsafeRawBufferPointer(start: bytes, count: count)), peer: known.address(of: peer!),
                        isTruncated: isTruncated)
                }
            }
        }
    }

    func send(_ datagram: DatagramState.Outgoing) -> Int32 {
        let code = datagram.bytes.withUnsafeBytes { cdatagrams_send(number, $0.baseAddress, $0.count, datagram.peer?.pointer) }
        return code == ENOTCONN ? reconnect() ?? send(datagram) : code
    }

    /// The kernel forgets a Unix peer when it has reported its end. Nil if there is one under its name again, otherwise an errno.
    private func reconnect() -> Int32? {
        guard let nativePeer else { return ENOTCONN }
        let code = cdatagrams_connect(number, nativePeer.pointer)
        return code == 0 ? nil : code
    }

    func sendBatch(of queue: DatagramQueue<DatagramState.Outgoing>) -> Int32 {
        let segments = uses.withLock { $0.segments }
        var staged = 0
        while staged < queue.count, Self.stage(queue[staged], segments) { staged += 1 }
        var refuses = false
        let result = staged == 0 ? -ENOMEM : cdatagrams_send_staged(number, &refuses)
        if result == -ENOTCONN { return reconnect().map { -$0 } ?? sendBatch(of: queue) }
        if !refuses { return result }
        // The route cannot do it, or the datagrams are longer than its packets.
        uses.withLock { $0.segments = false }
        return sendBatch(of: queue)
    }

    private static func stage(_ datagram: DatagramState.Outgoing, _ segments: Bool) -> Bool {
        datagram.bytes.withUnsafeBytes { cdatagrams_stage($0.baseAddress, $0.count, datagram.peer?.pointer, segments) }
    }

    func setMember(of group: RunLoop.SocketAddress, _ interface: String?, joins: Bool) throws(RunLoop.SourceError) {
        let operation = "\(joins ? "join" : "leave") \(group)"
        var native = try group.native()
        if group.kind != kind || kind == Int32(CPLATFORM_UNIX) { throw .system(operation: operation, errno: EAFNOSUPPORT) }
        guard let number = beginUse() else { throw .system(operation: operation, errno: EBADF) }
        defer { endUse() }
        let code = interface.map { cdatagrams_member(number, &native, $0, joins) } ?? cdatagrams_member(number, &native, nil, joins)
        if code != 0 { throw .system(operation: operation, errno: code) }
    }

    // MARK: Uses

    func beginUse() -> Int32? {
        guard isOurs else { return nil }
        return uses.withLock { uses in
            if uses.hasEnded { return nil }
            uses.count += 1
            return number
        }
    }

    func endUse() {
        // In a child, forked in a use: another thread of the parent may have held the lock, and `deinit` closes the child's copy.
        guard isOurs else { return }
        uses.withLock { $0.count -= 1 }
        closeIfUnused()
    }

    /// Removes the socket's file, and closes the descriptor after the last use. `isForeign`: it has been closed by other code.
    private func end(isForeign: Bool) {
        let isNew = uses.withLock { uses in
            defer { uses.hasEnded = true }
            if isForeign { isGone.store(true, ordering: .relaxed) }
            return !uses.hasEnded
        }
        if isNew { file?.remove() }
        closeIfUnused()
    }

    private func closeIfUnused() {
        let closes = uses.withLock { uses in
            guard uses.hasEnded, uses.count == 0 else { return false }
            return !isGone.exchange(true, ordering: .relaxed)
        }
        if closes { cplatform_close(number) }
    }
}
