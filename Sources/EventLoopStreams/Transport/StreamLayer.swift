// What changes a stream's bytes on their way between the transport and the program: TLS.

package import EventLoop

/// What a layer has for the program.
package enum LayerRead: Sendable, Equatable {
    /// At least one.
    case bytes(Int)
    /// More must come from the peer first.
    case nothing
    /// The peer has ended its side properly.
    case end
    /// The stream ends with this: the peer broke the protocol, or its bytes ended without the layer's end (truncation).
    case failed(RunLoop.SourceError)
}

/// What a layer did with what it was given for the peer.
package enum LayerWrite: Sendable, Equatable {
    /// It has taken everything.
    case wrote
    /// It has taken nothing: more must come from the peer first. The stream asks again with the same bytes, and perhaps more behind them.
    case wantsInput
    /// It takes nothing any more.
    case failed(RunLoop.SourceError)
}

package enum LayerHandshake: Sendable {
    case inProgress, done
    /// The error for the task that began the handshake, and the one with which the stream ends.
    case failed(any Error, RunLoop.SourceError)
}

/// The stream calls every member under its lock, from any thread. No member blocks or calls out.
///
/// The order of use: `begin`, then `receive` for what comes. After each of these the stream takes `takeOutput()` and sends it, and while
/// `handshake` is `.inProgress` does nothing else. When it is `.done`, `write` for what the program writes, and `read` until it returns
/// `.nothing`.
package protocol StreamLayer: AnyObject, Sendable {
    /// Begins the handshake.
    func begin()
    var handshake: LayerHandshake { get }
    /// Takes all of these bytes from the peer.
    func receive(_ bytes: UnsafeRawBufferPointer)
    /// The peer's last byte has come. After `read` has returned what came before, it returns `.end` or `.failed`.
    func receiveEnd()
    /// Whether it takes nothing any more to write when the peer's bytes have ended without the layer's own end.
    var stopsAtMissingEnd: Bool { get }
    /// Moves received plain bytes into `space`.
    func read(into space: UnsafeMutableRawBufferPointer) -> LayerRead
    /// Whether `read` would return something else than `.nothing` now, without more from the peer. May be true in vain.
    var mayHaveMore: Bool { get }
    /// Whether bytes of the peer have come that `read` has not come to: also a part of something that `read` returns only when it is whole.
    var hasUnreadInput: Bool { get }
    /// Takes all of these plain bytes, or none. Only after the handshake.
    func write(_ bytes: UnsafeRawBufferPointer) -> LayerWrite
    /// The program writes no more. Its last output says so to the peer. Only after the handshake.
    func finishWriting() -> LayerWrite
    /// What is to be sent to the peer; empty if nothing.
    func takeOutput() -> [UInt8]
}

extension StreamLayer {
    package var stopsAtMissingEnd: Bool { true }
}
