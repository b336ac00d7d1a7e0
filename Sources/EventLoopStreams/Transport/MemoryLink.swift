// A connection in memory, for tests.

import EventLoop
import EventLoopLibC

/// Two directions and two ends. The ends may be on two loops.
package final class MemoryLink: Sendable {
    struct State: Sendable {
        /// Lane 0 goes from end 0 to end 1, lane 1 back.
        var lanes: [MemoryLane]
        var ends = [MemoryEnd(), MemoryEnd()]
        var isReset = false

        /// Whether the other end sends no more, as a kernel would know it.
        func peerHasFinished(at end: Int) -> Bool { isReset || lanes[1 - end].hasArrivedEnd || lanes[end].isAbandoned }

        /// What the loop of an end is to be notified of.
        func readiness(of end: Int) -> (read: Bool, write: Bool) {
            let (incoming, outgoing, interest) = (lanes[1 - end], lanes[end], ends[end].interest)
            return (interest.read && (isReset || incoming.canRead), interest.write && (isReset || outgoing.canWrite))
        }
    }

    /// How one end waits for the other.
    struct MemoryEnd: Sendable {
        var source: RunLoop.CustomSource?
        var loop: RunLoop?
        var interest = (read: true, write: false)
        /// Called on the loop's thread when the peer sends no more.
        var peerFinish: (@Sendable () -> Void)?
    }

    private let state: LoopLock<State>

    /// `capacity`: how many bytes may be on their way in each direction. `seed`: where reads are split; nil: nowhere.
    package init(capacity: Int, seed: UInt64?) {
        let lanes = (0..<2).map { lane in
            MemoryLane(capacity: capacity, pieces: seed.map { MemoryPieces(seed: $0 &* 2 &+ UInt64(lane)) })
        }
        state = LoopLock(State(lanes: lanes))
    }

    /// Changes the state, and signals each end for which something is ready. A signal stays pending until the loop runs in a mode of the end.
    @discardableResult
    func change<R>(_ body: (inout State) -> R) -> R {
        let (result, wakes) = state.withLock { state in
            let result = body(&state)
            if !state.isReset && state.lanes.contains(where: \.isResetDue) { state.isReset = true }
            let wakes = (0..<2).compactMap { end -> (RunLoop.CustomSource, RunLoop)? in
                let ready = state.readiness(of: end)
                let isPeerFinish = state.ends[end].peerFinish != nil && state.peerHasFinished(at: end)
                guard ready.read || ready.write || isPeerFinish, let source = state.ends[end].source, let loop = state.ends[end].loop else {
                    return nil
                }
                return (source, loop)
            }
            return (result, wakes)
        }
        for (source, loop) in wakes where !source.isSignaled {
            source.signal()
            loop.wakeUp()
        }
        return result
    }

    func peerHasFinished(at end: Int) -> Bool { state.withLock { $0.peerHasFinished(at: end) } }

    func watchPeerFinish(at end: Int, _ body: @escaping @Sendable () -> Void) { change { $0.ends[end].peerFinish = body } }

    /// On the loop's thread: what is to be called because the peer sends no more. Once.
    func takePeerFinish(at end: Int) -> (@Sendable () -> Void)? {
        state.withLock { state in
            guard state.peerHasFinished(at: end) else { return nil }
            defer { state.ends[end].peerFinish = nil }
            return state.ends[end].peerFinish
        }
    }

    // MARK: What tests do to a connection

    /// Both ends fail with ECONNRESET, after the bytes that have arrived.
    package func reset() { change { $0.isReset = true } }

    /// The same when end `end` has written so many bytes in all.
    package func reset(from end: Int, after count: Int) { change { $0.lanes[end].reset(after: count) } }

    /// The other end sees the end of the stream when end `end` has written so many bytes in all; what it writes beyond is lost.
    package func finish(from end: Int, after count: Int) { change { $0.lanes[end].end(after: count) } }

    /// Whether what end `end` writes stays on its way.
    package func hold(from end: Int, _ isHeld: Bool) { change { $0.lanes[end].isHeld = isHeld } }

    /// How many bytes end `end` has written in all, and how many of them are on their way.
    package func counts(from end: Int) -> (written: Int, onTheirWay: Int) {
        state.withLock { ($0.lanes[end].written, $0.lanes[end].count) }
    }

    // MARK: For the ends

    func read(at end: Int, into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        change { state in
            switch state.lanes[1 - end].read(into: space) {
            case nil: return .wouldBlock
            case 0?:
                if state.isReset { return Self.failure("read", ECONNRESET) }
                return state.lanes[1 - end].canRead ? .end : .wouldBlock
            case let count?: return .bytes(count)
            }
        }
    }

    func write(at end: Int, _ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
        change { state in
            if state.isReset || state.lanes[end].isAbandoned {
                // A connection says so behind everything that the peer has sent.
                state.lanes[1 - end].splitNoMore()
                return Self.failure("write", state.isReset ? ECONNRESET : EPIPE)
            }
            var total = 0
            for part in parts {
                let count = state.lanes[end].write(part)
                total += count
                if count < part.count { break }
            }
            return total > 0 ? .bytes(total) : .wouldBlock
        }
    }

    private static func failure(_ operation: String, _ errno: Int32) -> TransferResult {
        .failed(.system(operation: operation, errno: errno))
    }

    /// The end reads and writes no more. What it has written arrives.
    func close(_ end: Int) {
        change { state in
            state.lanes[end].finish()
            state.lanes[1 - end].isAbandoned = true
            state.ends[end] = MemoryEnd()
        }
    }
}
