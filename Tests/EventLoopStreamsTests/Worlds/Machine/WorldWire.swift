// The connection of a small world, seen from the peer: bytes as they are on the way.

import EventLoop

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// It belongs to the world's thread, and to a thread that this one waits for.
protocol WorldWire: AnyObject {
    /// How many bytes fit on the way, roughly.
    var capacity: Int { get }
    func makeStream(on loop: RunLoop, _ options: ByteStream.Options) throws -> ByteStream
    /// What does not fit waits here.
    func send(_ bytes: [UInt8])
    var waiting: [UInt8] { get }
    /// The end of what the peer sends.
    func finish()
    func close()
    func reset()
    /// What has come; `hasEnded`: and nothing more comes.
    func receive() -> (bytes: [UInt8], hasEnded: Bool)
}

final class MemoryWire: WorldWire {
    let capacity: Int
    private let link: MemoryLink
    private(set) var waiting: [UInt8] = []
    private var finishes = false

    init(seed: UInt64?, capacity: Int = 16) {
        self.capacity = capacity
        link = MemoryLink(capacity: capacity, seed: seed)
    }

    func makeStream(on loop: RunLoop, _ options: ByteStream.Options) throws -> ByteStream {
        try ByteStream(over: MemoryTransport(link, end: 0), on: loop, options: options)
    }

    func send(_ bytes: [UInt8]) {
        if finishes { return }
        waiting += bytes
        flush()
    }

    private func flush() {
        while !waiting.isEmpty {  // ends: nothing is left, or nothing more fits
            let result = waiting.withUnsafeBytes { bytes in
                withUnsafePointer(to: UnsafeRawBufferPointer(bytes)) { link.write(at: 1, UnsafeBufferPointer(start: $0, count: 1)) }
            }
            guard case .bytes(let count) = result else { break }
            waiting.removeFirst(count)
        }
        if finishes && waiting.isEmpty { link.change { $0.lanes[1].finish() } }
    }

    func finish() {
        finishes = true
        flush()
    }

    func close() {
        // A peer that closes has sent what it sent.
        waiting = []
        finishes = true
        link.close(1)
    }

    func reset() {
        waiting = []
        link.reset()
    }

    func receive() -> (bytes: [UInt8], hasEnded: Bool) {
        flush()
        var bytes: [UInt8] = []
        var space = [UInt8](repeating: 0, count: 64)
        while true {  // ends: with the bytes on their way
            link.change { $0.lanes[0].beginPass() }
            switch space.withUnsafeMutableBytes({ link.read(at: 1, into: $0) }) {
            case .bytes(let count): bytes += space[..<count]
            case .wouldBlock: return (bytes, false)
            case .end, .failed: return (bytes, true)
            }
        }
    }
}
