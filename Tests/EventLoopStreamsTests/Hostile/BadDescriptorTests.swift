// What cannot be a stream: a typed error, and the descriptor is closed. Each in a process of its own, because other tests open descriptors.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private typealias SourceError = RunLoop.SourceError

private let datagramType: Int32 = {
    #if canImport(Glibc)
    Int32(SOCK_DGRAM.rawValue)
    #else
    SOCK_DGRAM
    #endif
}()

/// The descriptor under a number that nothing else of the process gets soon: the test asks whether it was closed, and another thread of the
/// library or of the tests may open a file meanwhile, which gets the lowest free number.
private func farAway(_ descriptor: Int32) -> Int32 {
    let moved = fcntl(descriptor, F_DUPFD_CLOEXEC, 900)
    precondition(moved >= 900, "the test has room for another descriptor")
    _ = close(descriptor)
    return moved
}

/// Whether adopting it throws what `isExpected` accepts, and closes the descriptor.
private func isRefused(_ descriptor: Int32, _ isExpected: (SourceError) -> Bool) -> Bool {
    do {
        _ = try ByteStream(adopting: descriptor, on: .main)
        return false
    } catch { return isExpected(error) && !isOpen(descriptor) }
}

private func errno(_ error: SourceError) -> Int32? { if case .system(_, let errno) = error { errno } else { nil } }

/// Ends the process with success if all of these hold; otherwise, the first one that does not is its status.
private func exit(_ results: Bool...) -> Never { _exit(Int32(results.firstIndex(of: false).map { $0 + 100 } ?? 0)) }

@Suite(.tags(.memory)) struct BadDescriptorTests {
    @Test func `a descriptor that is not open is refused`() async {
        await #expect(processExitsWith: .success) {
            // Far from what the loop opens.
            exit(isRefused(900) { $0 == .badDescriptor(900) }, isRefused(-1) { $0 == .badDescriptor(-1) })
        }
    }

    @Test func `a regular file and a directory are refused, and closed`() async {
        await #expect(processExitsWith: .success) {
            let (file, folder) = (farAway(open("/proc/self/exe", O_RDONLY)), farAway(open("/tmp", O_RDONLY)))
            exit(isRefused(file) { $0 == .notPollable(file) }, isRefused(folder) { $0 == .notPollable(folder) })
        }
    }

    @Test func `sockets that are not connected, listen or carry datagrams are refused, and closed`() async {
        await #expect(processExitsWith: .success) {
            let fresh = connectedSockets()
            _ = close(fresh.1)
            let unconnected = farAway(socket(AF_INET, Int32(1), 0))
            let listener = farAway(listenOnLoopback().descriptor)
            let datagram = farAway(socket(AF_INET, datagramType, 0))
            exit(
                isRefused(unconnected) { errno($0) == ENOTCONN }, isRefused(listener) { errno($0) == ENOTCONN },
                isRefused(datagram) { errno($0) == EPROTOTYPE },
                // The peer is gone, but what it has sent can be read: this is a stream.
                (try? ByteStream(adopting: fresh.0, on: .main)) != nil)
        }
    }

    @Test func `both of two descriptors are closed if either is refused`() async {
        await #expect(processExitsWith: .success) {
            func isRefused(_ reading: Int32, _ writing: Int32) -> Bool {
                do {
                    _ = try ByteStream(reading: reading, writing: writing, on: .main)
                    return false
                } catch { return !isOpen(reading) && !isOpen(writing) }
            }
            let pipes = (0..<3).map { _ in
                let (reading, writing) = openPipe()
                return (farAway(reading), farAway(writing))
            }
            let (first, second, third) = (pipes[0], pipes[1], pipes[2])
            let listener = farAway(listenOnLoopback().descriptor)
            exit(
                isRefused(-1, first.1), isRefused(second.0, -1), isRefused(listener, third.1),
                isRefused(third.0, farAway(socket(AF_INET, datagramType, 0))), isOpen(first.0))
        }
    }

    @Test func `the descriptor is closed when the loop has ended`() async {
        await #expect(processExitsWith: .success) {
            let ended = try? onFreshThread { loop in loop }
            guard let loop = ended else { exit(false) }
            let pair = connectedSockets()
            let (ours, peer) = (farAway(pair.0), pair.1)
            do {
                _ = try ByteStream(adopting: ours, on: loop)
                exit(true, false)
            } catch { exit(error as? SourceError == .loopEnded, !isOpen(ours), isOpen(peer)) }
        }
    }

    @Test func `a descriptor that somebody closes under a stream ends the stream`() async {
        await #expect(processExitsWith: .success) {
            let done = try? onFreshThread { loop -> Bool in
                let (ours, peer) = connectedSockets()
                let stream = try ByteStream(adopting: ours, on: loop)
                let ended = Box(false)
                stream.onEnd { _, _ in ended.value = true }
                _ = loop.run(for: .zero)
                // Another file gets the number; writing must not reach it for long.
                close(ours)
                stream.send("x")
                _ = loop.run(for: .milliseconds(200))
                close(peer)
                return ended.value && !stream.isOpen
            }
            exit(done == true)
        }
    }

    @Test(arguments: 0..<7) func `limits that contradict each other are a precondition failure with a sentence`(index: Int) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
            var options = ByteStream.Options()
            switch index {
            case 0: options.lowWater = options.highWater
            case 1: options.lowWater = -1
            case 2: options.highWater = 0
            case 3: options.receiveLimit = 0
            case 4: options.receiveLimit = -1
            case 5: options.idleTimeout = .zero
            default: options.writeTimeout = .seconds(-1)
            }
            _ = try ByteStream(adopting: connectedSockets().0, on: .main, options: options)
        }
        let text = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
        let names = [
            "lowWater (65536)", "lowWater (-1)", "highWater (0)", "receiveLimit, not 0", "receiveLimit, not -1", "idleTimeout",
            "writeTimeout",
        ]
        #expect(text.contains(names[index]))
    }
}
