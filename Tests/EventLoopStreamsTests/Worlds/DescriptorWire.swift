// A connection of a small world over descriptors.

import CStreams
import EventLoop
import EventLoopStreams
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

final class DescriptorWire: WorldWire {
    enum Kind { case socket, pipes }

    let capacity: Int
    private var ours: (read: Int32, write: Int32)
    private var peer: (read: Int32, write: Int32)
    private let kind: Kind
    private(set) var waiting: [UInt8] = []
    private var finishes = false

    init(_ kind: Kind) {
        self.kind = kind
        switch kind {
        case .socket:
            let (one, two) = connectedSockets()
            for end in [one, two] {
                var size: Int32 = 1
                setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, 4)
            }
            (ours, peer) = ((one, one), (two, two))
            capacity = 4_096
        case .pipes:
            let (forth, back) = (openPipe(), openPipe())
            for end in [forth.1, back.1] { _ = fcntl(end, Self.setPipeSize, 4_096) }
            (ours, peer) = ((back.0, forth.1), (forth.0, back.1))
            capacity = 4_096
        }
        for end in [peer.read, peer.write] { _ = fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK) }
    }

    /// F_SETPIPE_SZ of Linux; an error elsewhere.
    private static let setPipeSize: Int32 = 1_031

    deinit { close() }

    func makeStream(on loop: RunLoop, _ options: ByteStream.Options) throws -> ByteStream {
        switch kind {
        case .socket: try ByteStream(adopting: ours.read, on: loop, options: options)
        case .pipes: try ByteStream(reading: ours.read, writing: ours.write, on: loop, options: options)
        }
    }

    func send(_ bytes: [UInt8]) {
        if finishes { return }
        waiting += bytes
        flush()
    }

    private func flush() {
        while !waiting.isEmpty && peer.write >= 0 {  // ends: nothing is left, or nothing more fits
            let count = waiting.withUnsafeBytes {
                cstreams_write(peer.write, kind == .socket ? 1 : 2, $0.baseAddress, $0.count)
            }
            if count <= 0 {
                if count != -Int(EAGAIN) { waiting = [] }
                break
            }
            waiting.removeFirst(count)
        }
        if finishes && waiting.isEmpty && peer.write >= 0 {
            if kind == .socket { _ = shutdown(peer.write, Int32(SHUT_WR)) } else { closeWriting() }
        }
    }

    private func closeWriting() {
        if peer.write >= 0 && peer.write != peer.read { _ = Glibc.close(peer.write) }
        peer.write = -1
    }

    func finish() {
        finishes = true
        flush()
    }

    func close() {
        (waiting, finishes) = ([], true)
        closeWriting()
        if peer.read >= 0 { _ = Glibc.close(peer.read) }
        peer.read = -1
    }

    /// A Unix socket is reset if it is closed with unread bytes.
    func reset() { close() }

    func receive() -> (bytes: [UInt8], hasEnded: Bool) {
        flush()
        if peer.read < 0 { return ([], true) }
        var bytes: [UInt8] = []
        var space = [UInt8](repeating: 0, count: 8_192)
        while true {  // ends: with the bytes on their way
            let count = read(peer.read, &space, space.count)
            if count <= 0 { return (bytes, count == 0 || errno != EAGAIN) }
            bytes += space[..<count]
        }
    }
}
