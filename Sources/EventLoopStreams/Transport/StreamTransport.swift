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

/// What a transport calls when something happened. On the loop's thread, in a pass of a mode of the stream.
package struct TransportEvents: Sendable {
    /// Reading or writing may succeed.
    package let ready: @Sendable (_ read: Bool, _ write: Bool) -> Void
    /// Called first when the transport leaves the loop: after `close()`, because it failed, or because the loop has ended (nil). From then on the
    /// stream does not use it, so it may close its descriptors.
    package let willClose: @Sendable (_ failure: RunLoop.SourceError?) -> Void
    /// Called once, last.
    package let closed: @Sendable () -> Void

    package init(
        ready: @escaping @Sendable (_ read: Bool, _ write: Bool) -> Void,
        willClose: @escaping @Sendable (_ failure: RunLoop.SourceError?) -> Void, closed: @escaping @Sendable () -> Void
    ) {
        (self.ready, self.willClose, self.closed) = (ready, willClose, closed)
    }
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
    /// Which readiness is reported. Called only for changes. What is returned is released outside the lock: if the loop has ended meanwhile, that
    /// is the last release of a source, and it calls the stream.
    func setInterest(read: Bool, write: Bool) -> [AnyObject]
    /// Called outside the lock after `finishWriting`.
    func didFinishWriting() /* DOES CALLOUT */
    /// Whether closing with unread bytes destroys what is on its way to the peer.
    var losesBytesOnClose: Bool { get }
    /// Nothing can be read, so that the end of writing is the end of everything: the writing end of a pipe.
    var isWriteOnly: Bool { get }
    /// Leaves the loop, and calls `willClose` and `closed` when that has happened, possibly before it returns.
    func close() /* DOES CALLOUT */

    var localAddress: RunLoop.SocketAddress? { get }
    var peerAddress: RunLoop.SocketAddress? { get }
}
