// W14: how one connection is served: by a stream's handlers, by a task, and by hand on a descriptor source.

import CPerfPeers
import EventLoop
import EventLoopStreams
import Glibc

/// Serves one connection on the current thread's loop. Calls `answered` after each message, if it is not nil, and `ended` last, when the peer
/// has closed the connection.
typealias EchoWay = @Sendable (_ descriptor: Int32, _ answered: (@Sendable () -> Void)?, _ ended: @escaping @Sendable () -> Void) -> Void

enum EchoWays {
    // MARK: Streams

    static let handlers: EchoWay = { serve($0, ByteStream.Options(), $1, $2) }

    static let handlersWithTimeout: EchoWay = { serve($0, anHour, $1, $2) }

    /// Made once, as a server does.
    private static let anHour: ByteStream.Options = {
        var options = ByteStream.Options()
        options.idleTimeout = .seconds(3_600)
        return options
    }()

    private static func serve(
        _ descriptor: Int32, _ options: ByteStream.Options, _ answered: (@Sendable () -> Void)?, _ ended: @escaping @Sendable () -> Void
    ) {
        // The descriptor is connected and the loop has not ended, so this does not throw.
        let stream = try! ByteStream(adopting: descriptor, on: .current, options: options)
        stream.onReceive { stream, bytes in
            if !bytes.withUnsafeBytes({ stream.send($0) }) { stream.isReading = false }
            bytes.consume(bytes.count)
            answered?()
        }
        stream.onRoom { stream in stream.isReading = true }
        stream.onEnd { _, _ in ended() }
    }

    static let task: EchoWay = { descriptor, answered, ended in
        let loop = RunLoop.current
        let stream = try! ByteStream(adopting: descriptor, on: loop)
        Task(executorPreference: loop) {
            // A client that leaves with answers unread resets the connection.
            do {
                while let bytes = try await stream.read() {
                    try await stream.write(bytes)
                    answered?()
                }
            } catch {}
            stream.close()
            ended()
        }
    }

    /// An actor on the loop: its methods and the stream's handlers run on the same thread.
    private actor EchoActor {
        private let stream: ByteStream
        nonisolated var unownedExecutor: UnownedSerialExecutor { stream.loop.asUnownedSerialExecutor() }

        init(_ stream: ByteStream) { self.stream = stream }

        func serve(_ ended: @Sendable () -> Void) async {
            do { while let bytes = try await stream.read() { try await stream.write(bytes) } } catch {}
            stream.close()
            ended()
        }
    }

    static let actor: EchoWay = { descriptor, _, ended in
        let loop = RunLoop.current
        let echo = EchoActor(try! ByteStream(adopting: descriptor, on: loop))
        Task(executorPreference: loop) { await echo.serve(ended) }
    }

    /// Swift resumes a continuation on the executor that its task prefers, and then changes to the actor's. Without a preference that is a
    /// round trip to the global pool in each wait.
    static let actorOfDefaultTask: EchoWay = { descriptor, _, ended in
        let echo = EchoActor(try! ByteStream(adopting: descriptor, on: .current))
        Task { await echo.serve(ended) }
    }

    static let consuming: EchoWay = { descriptor, answered, ended in
        let stream = try! ByteStream(adopting: descriptor, on: .current)
        stream.onReceive { stream, bytes in
            bytes.consume(bytes.count)
            answered?()
        }
        stream.onEnd { _, _ in ended() }
    }

    // MARK: By hand

    static let byHand: EchoWay = { descriptor, answered, ended in
        let echo = EchoByHand(descriptor)
        // The handler owns the state. The descriptor is open, so this does not throw.
        let source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, events in
            if echo.serve(source, events) {
                answered?()
            } else {
                source.invalidate()
            }
        }
        source.onInvalidation { _ in
            close(descriptor)
            ended()
        }
        RunLoop.current.add(source)
    }

    static let consumingByHand: EchoWay = { descriptor, answered, ended in
        let source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, _ in
            let count = read(descriptor, EchoByHand.space.pointer, EchoByHand.spaceSize)
            if count > 0 || (count < 0 && errno == EAGAIN) { answered?() } else { source.invalidate() }
        }
        source.onInvalidation { _ in
            close(descriptor)
            ended()
        }
        RunLoop.current.add(source)
    }
}

/// An echo as a user would write it: reads into one space for all connections, writes from there, and keeps only what the kernel did not take.
private final class EchoByHand: @unchecked Sendable {
    // SAFETY: used only on the loop's thread.
    static let spaceSize = 65_536
    static let space = OnLoop<UInt8>(.allocate(capacity: spaceSize))

    private let descriptor: Int32
    private var waiting: [UInt8] = []
    private var sent = 0

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// False when the connection has ended.
    func serve(_ source: RunLoop.DescriptorSource, _ events: RunLoop.DescriptorSource.Events) -> Bool {
        if !waiting.isEmpty { return sendWaiting(source) }
        let count = read(descriptor, Self.space.pointer, Self.spaceSize)
        guard count > 0 else { return count < 0 && errno == EAGAIN }
        let taken = send(descriptor, Self.space.pointer, count, Int32(MSG_NOSIGNAL))
        if taken == count { return true }
        guard taken >= 0 || errno == EAGAIN else { return false }
        waiting = Array(UnsafeBufferPointer(start: Self.space.pointer + max(taken, 0), count: count - max(taken, 0)))
        source.events = .write  // reads on when this is sent
        return true
    }

    private func sendWaiting(_ source: RunLoop.DescriptorSource) -> Bool {
        let taken = waiting.withUnsafeBytes {
            Glibc.send(descriptor, $0.baseAddress! + sent, $0.count - sent, Int32(MSG_NOSIGNAL))
        }
        guard taken >= 0 else { return errno == EAGAIN }
        sent += taken
        guard sent == waiting.count else { return true }
        (waiting, sent) = ([], 0)
        source.events = .read
        return true
    }
}
