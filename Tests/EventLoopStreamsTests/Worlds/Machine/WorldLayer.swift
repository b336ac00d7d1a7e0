// The layer of a small world, which stands for TLS, and the peer's side of it.
//
// On the way, a plain byte of the layer has its highest bit set. Without it, a byte is a word of the protocol:
// B the stream begins, H the peer ends the handshake, K the peer asks for an answer, R the answer, W the first half of a ticket, V its second
// half, E the end of a side. The bytes that a program sends without a layer are small letters.

import EventLoop

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// What a world needs of TLS: a layer for the stream, and the peer's side of it.
struct WorldTLS: Sendable {
    let makeLayer: @Sendable (WorldTrouble?) throws -> any StreamLayer
    let makePeer: @Sendable () throws -> any WorldPeerLayer
    /// The first byte of the layer.
    let firstByte: UInt8

    static let scripted = WorldTLS(
        makeLayer: { WorldLayer($0) }, makePeer: { WorldScriptedPeer() }, firstByte: UInt8(ascii: "B"))
}

/// The peer's side of a layer. It belongs to the world's thread.
protocol WorldPeerLayer: AnyObject {
    var isDone: Bool { get }
    /// What it has to say for the handshake.
    func takeOutput() -> [UInt8]
    /// Takes what came from the stream. `hasEnded`: the stream has said so.
    func receive(_ bytes: [UInt8]) -> (plain: [UInt8], hasEnded: Bool, complaint: String?)
    func encrypt(_ plain: [UInt8]) -> [UInt8]
    func goodbye() -> [UInt8]
    /// The two halves of a message that nobody else must interrupt.
    func ticket() -> (first: [UInt8], second: [UInt8])
    func keyUpdate() -> [UInt8]
}

private func word(_ letter: Unicode.Scalar) -> UInt8 { UInt8(ascii: letter) }

final class WorldScriptedPeer: WorldPeerLayer {
    private(set) var isDone = false
    private var output: [UInt8] = []
    private var hasEnded = false

    func takeOutput() -> [UInt8] {
        defer { output = [] }
        if !output.isEmpty { isDone = true }
        return output
    }

    func receive(_ bytes: [UInt8]) -> (plain: [UInt8], hasEnded: Bool, complaint: String?) {
        var plain: [UInt8] = []
        var complaint: String?
        for byte in bytes {
            switch byte {
            case word("B"): output.append(word("H"))
            case word("R"): break
            case word("E"): hasEnded = true
            case 0x80...:
                if hasEnded { complaint = "bytes after the layer's end" }
                plain.append(byte & 0x7f)
            default: complaint = "in the clear after startTLS: \(byte)"
            }
        }
        return (plain, hasEnded, complaint)
    }

    func encrypt(_ plain: [UInt8]) -> [UInt8] { plain.map { $0 | 0x80 } }
    func goodbye() -> [UInt8] { [word("E")] }
    func ticket() -> (first: [UInt8], second: [UInt8]) { ([word("W")], [word("V")]) }
    func keyUpdate() -> [UInt8] { [word("K")] }
}

final class WorldLayer: StreamLayer, @unchecked Sendable {
    // SAFETY: the stream calls it under its lock.

    private(set) var handshake = LayerHandshake.inProgress
    private let trouble: WorldTrouble?
    private var calls: [WorldTrouble.Call: Int] = [:]
    private var plain: [UInt8] = []
    private var output: [UInt8] = []
    private var isInTicket = false
    private var waitsForMore = false
    private var hasEnded = false
    private var isAtEnd = false
    private var hasFinished = false
    private var isBroken = false
    private var losesNext = false

    private static let error = RunLoop.SourceError.system(operation: "small world", errno: EPROTO)

    init(_ trouble: WorldTrouble?) { self.trouble = trouble }

    /// What goes wrong in this call.
    private func trouble(in call: WorldTrouble.Call) -> WorldTrouble.What? {
        calls[call, default: 0] += 1
        guard let trouble, trouble.call == call, trouble.number == calls[call] else { return nil }
        // Behind the end nothing comes that it could wait for.
        if trouble.what == .wantsInput && (hasEnded || isAtEnd) { return nil }
        switch trouble.what {
        case .fails: isBroken = true
        case .wantsInput: waitsForMore = true
        case .loses: losesNext = true
        }
        return trouble.what
    }

    func begin() { output.append(word("B")) }

    func receive(_ bytes: UnsafeRawBufferPointer) {
        waitsForMore = false
        for byte in bytes {
            if case .inProgress = handshake {
                let fails = trouble(in: .handshake) == .fails
                waitsForMore = false
                handshake = byte == word("H") && !fails ? .done : .failed(StreamError.closed, Self.error)
                continue
            }
            switch byte {
            case word("K"): output.append(word("R"))
            case word("W"): isInTicket = true
            case word("V"): isInTicket = false
            case word("E"): hasEnded = true
            case 0x80...: plain.append(byte & 0x7f)
            default: isBroken = true
            }
        }
    }

    func receiveEnd() {
        (waitsForMore, isAtEnd) = (false, true)
        if case .inProgress = handshake { return handshake = .failed(StreamError.endedEarly, Self.error) }
        if !hasEnded { isBroken = true }
    }

    func read(into space: UnsafeMutableRawBufferPointer) -> LayerRead {
        guard case .done = handshake, !waitsForMore else { return .nothing }
        if trouble(in: .read) == .wantsInput { return .nothing }
        if !plain.isEmpty {
            let count = min(space.count, plain.count)
            space.copyBytes(from: plain.prefix(count))
            plain.removeFirst(count)
            return .bytes(count)
        }
        if isBroken { return .failed(Self.error) }
        return hasEnded ? .end : .nothing
    }

    var mayHaveMore: Bool { !waitsForMore && (!plain.isEmpty || hasEnded || isBroken) }
    var hasUnreadInput: Bool { !plain.isEmpty }

    func write(_ bytes: UnsafeRawBufferPointer) -> LayerWrite {
        let ready = isReady(.write)
        if ready == .wrote && !losesNext { output += bytes.map { $0 | 0x80 } }
        losesNext = false
        return ready
    }

    func finishWriting() -> LayerWrite {
        let ready = isReady(.finish)
        if ready == .wrote && !hasFinished {
            hasFinished = true
            output.append(word("E"))
        }
        return ready
    }

    private func isReady(_ call: WorldTrouble.Call) -> LayerWrite {
        if isInTicket || waitsForMore { return .wantsInput }
        switch trouble(in: call) {
        case .wantsInput: return .wantsInput
        case .fails, .loses, nil: return isBroken ? .failed(Self.error) : .wrote
        }
    }

    func takeOutput() -> [UInt8] {
        defer { output = [] }
        return output
    }
}
