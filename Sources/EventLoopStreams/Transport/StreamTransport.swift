// What a stream reads from and writes to: descriptors, or another stream in memory.

package import EventLoop

/// What one attempt to read or write gave.
package enum TransferResult: Sendable, Equatable {
    /// At least one.
    case bytes(Int)
    case wouldBlock
    /// Reading: the peer has sent its last byte.
    case end
    case failed(RunLoop.SourceError)
}

/// The stream, as its transport sees it: `StreamCore` overrides every member. A transport calls it on the loop's thread, in a pass of a mode of the
/// stream, and retains it until `transportDidClose` at the latest. A class, because a closure that captures one reference takes no memory.
package class TransportEvents: @unchecked Sendable {
    // SAFETY: has no state.

    /// Reading or writing may succeed.
    package func ready(read: Bool, write: Bool) { /* DOES CALLOUT */  }
    /// Called first when the transport leaves the loop: after `close()`, because it failed, or because the loop has ended (nil). From then on the
    /// stream does not use it, so it may close its descriptors.
    package func transportWillClose(_ failure: RunLoop.SourceError?) {}
    /// Called once, last.
    package func transportDidClose() { /* DOES CALLOUT */  }
}

/// The stream calls every member under its lock, from any thread, except `open`, `close` and `didFinishWriting`; it calls none after `close()`. No
/// member blocks. Only those three call out.
package protocol StreamTransport: AnyObject, Sendable {
    /// Adds itself to a mode of the loop; interested in reading from then on. Throws `.loopEnded` if the loop has ended. Once.
    func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError)

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult
    /// Writes as many of these bytes as it can. At least one part, none of them empty.
    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult
    /// Signals the end of the data to the peer.
    func finishWriting()
    /// Which readiness is reported. Called only for changes.
    func setInterest(read: Bool, write: Bool)
    /// Called outside the lock after `finishWriting`.
    func didFinishWriting() /* DOES CALLOUT */
    /// Whether closing with unread bytes destroys what is on its way to the peer.
    var losesBytesOnClose: Bool { get }
    /// Nothing can be read, so that the end of writing is the end of everything: the writing end of a pipe.
    var isWriteOnly: Bool { get }
    /// Leaves the loop, and calls `transportWillClose` and `transportDidClose` when that has happened, possibly before it returns.
    func close() /* DOES CALLOUT */

    var localAddress: RunLoop.SocketAddress? { get }
    var peerAddress: RunLoop.SocketAddress? { get }

    /// The descriptor that is read; nil for a stream in memory. From any thread, without the stream's lock.
    var descriptorSide: DescriptorSide? { get }
    /// Whether the peer sends no more, as the kernel knows it now, whatever has been read. As for the others, under the stream's lock.
    var peerHasFinished: Bool { get }
    /// Calls `body` on the loop's thread, in a mode of the stream, when `peerHasFinished` has become true; perhaps several times. Outside the
    /// stream's lock: once, and then perhaps again on the loop's thread, which changes nothing unless descriptors have run out.
    func watchPeerFinish(on loop: RunLoop, mode: RunLoop.Mode, _ body: @escaping @Sendable () -> Void) /* DOES CALLOUT */
}

/// A transport without a descriptor, whose peer's end is known when it is read.
extension StreamTransport {
    package var descriptorSide: DescriptorSide? { nil }
    package var peerHasFinished: Bool { false }
    package func watchPeerFinish(on loop: RunLoop, mode: RunLoop.Mode, _ body: @escaping @Sendable () -> Void) {}
}
