// What a datagram socket receives from and sends to: the kernel, or a network in memory.

internal import EventLoop

/// Called by the core under its lock, if not said otherwise; a transport never calls the core in such a call.
protocol DatagramTransport: AnyObject, Sendable {
    /// Of its addresses, as CPLATFORM_IPV4.
    var kind: Int32 { get }
    var localAddress: RunLoop.SocketAddress { get }
    /// The only one that it exchanges datagrams with.
    var peer: RunLoop.SocketAddress? { get }
    /// False in a child of fork, if the parent made it.
    var isOurs: Bool { get }
    /// Whether `readyForDatagrams` is called when there is room again.
    var reportsRoom: Bool { get }
    /// How many datagrams have found no room before they were received; nil if that is unknown. Wraps around.
    var drops: UInt32? { get }
    /// Whether what was sent reaches its receivers only in `deliverSent`.
    var deliversLater: Bool { get }

    /// Joins the loop; `core` is retained until it has left. Without the lock. If it throws, the transport is closed.
    func open(
        for core: DatagramCore, on loop: RunLoop, mode: RunLoop.Mode, label: String, file: StaticString, line: UInt
    ) throws(RunLoop.SourceError)
    /// Which readiness the loop reports.
    func setInterest(_ events: RunLoop.DescriptorSource.Events)

    /// Receives a batch. The number of datagrams, or a negated errno.
    func receive(upTo maximumSize: Int, into collector: inout DatagramCollector) -> Int32
    /// 0, or an errno.
    func send(_ datagram: DatagramState.Outgoing) -> Int32
    /// Sends from the beginning of a queue that is not empty, with one system call. The number of datagrams, or a negated errno if the first one
    /// is not sent.
    func sendBatch(of queue: DatagramQueue<DatagramState.Outgoing>) -> Int32
    /// Delivers what was sent, if the transport `deliversLater`. Without the lock, after each use of it that may send.
    func deliverSent() /* DOES CALLOUT */

    /// Joins a multicast group, or leaves it. Without the lock.
    func setMember(of group: RunLoop.SocketAddress, _ interface: String?, joins: Bool) throws(RunLoop.SourceError)
    /// The descriptor, which stays open until `endUse`; nil without one, or after `close`. Without the lock.
    func beginUse() -> Int32?
    func endUse()

    /// Leaves the loop, and frees its address. Without the lock.
    func close()
    /// The same after the transport has left the loop. `isForeign`: the descriptor has been closed by other code.
    func didLeaveLoop(isForeign: Bool)
}

/// What a received batch goes to.
struct DatagramCollector {
    var input: DatagramQueue<Datagram>
    var room: Int
    var known: KnownAddress
    /// The handler takes all of it before the next batch.
    let isHandled: Bool
    var received: UInt64 = 0
    var dropped: UInt64 = 0

    /// `datagram` gets the addresses that it has seen last.
    mutating func take(_ datagram: (inout KnownAddress) -> Datagram) {
        if room <= 0 && !isHandled {
            dropped += 1
            return
        }
        room -= 1
        received += 1
        input.append(datagram(&known))
    }
}
