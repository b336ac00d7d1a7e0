// A layer that does what a script says: it stands for TLS at its worst moments.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Passes bytes on as they are, except these, which the peer sends: `H` ends the handshake, `F` makes it fail, `K` asks for an answer of 32 bytes,
/// `W` makes the next writes want input until `w` comes, `E` is the proper end, `X` breaks the protocol.
final class ScriptedLayer: StreamLayer, @unchecked Sendable {
    // SAFETY: the stream calls it under its lock.
    static let answer = [UInt8](repeating: UInt8(ascii: "k"), count: 32)

    private(set) var handshake = LayerHandshake.inProgress
    private var plain: [UInt8] = []
    private var output: [UInt8] = []
    private var wantsInput = false
    private var hasEnded = false
    private var isBroken = false

    private static let error = RunLoop.SourceError.system(operation: "script", errno: EPROTO)

    func begin() {}

    func receive(_ bytes: UnsafeRawBufferPointer) {
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "H"): handshake = .done
            case UInt8(ascii: "F"): handshake = .failed(StreamError.closed, Self.error)
            case UInt8(ascii: "K"): output += Self.answer
            case UInt8(ascii: "W"): wantsInput = true
            case UInt8(ascii: "w"): wantsInput = false
            case UInt8(ascii: "E"): hasEnded = true
            case UInt8(ascii: "X"): isBroken = true
            default: plain.append(byte)
            }
        }
    }

    func receiveEnd() { if !hasEnded { isBroken = true } }

    func read(into space: UnsafeMutableRawBufferPointer) -> LayerRead {
        guard case .done = handshake else { return .nothing }
        if !plain.isEmpty {
            let count = min(space.count, plain.count)
            space.copyBytes(from: plain.prefix(count))
            plain.removeFirst(count)
            return .bytes(count)
        }
        if isBroken { return .failed(Self.error) }
        return hasEnded ? .end : .nothing
    }

    var mayHaveMore: Bool { !plain.isEmpty || hasEnded || isBroken }
    var hasUnreadInput: Bool { !plain.isEmpty }

    func write(_ bytes: UnsafeRawBufferPointer) -> LayerWrite {
        if isBroken { return .failed(Self.error) }
        if wantsInput { return .wantsInput }
        output += bytes
        return .wrote
    }

    func finishWriting() -> LayerWrite {
        if isBroken { return .failed(Self.error) }
        if wantsInput { return .wantsInput }
        output.append(UInt8(ascii: "E"))
        return .wrote
    }

    func takeOutput() -> [UInt8] {
        defer { output = [] }
        return output
    }
}
