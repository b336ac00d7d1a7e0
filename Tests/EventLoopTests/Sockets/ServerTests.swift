// Rules proved here: a server on a loop serves a thousand connections. If the process runs out of descriptors, the listener pauses. Neither
// the listener nor a connection is lost, and nothing spins.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Echoes its input until the peer has sent everything.
private func echo(_ descriptor: Int32, on loop: RunLoop) {
    let source = try? RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, _ in
        var buffer = [UInt8](repeating: 0, count: 512)
        let count = read(descriptor, &buffer, buffer.count)
        if count > 0 { _ = write(descriptor, buffer, count) } else if count == 0 || errno != EAGAIN { source.invalidate() }
    }
    source?.onInvalidation { close(descriptor) }
    if let source { loop.add(source) } else { close(descriptor) }
}

private func setDescriptorLimit(_ count: UInt) {
    var limit = rlimit()
    #if canImport(Glibc)
    let kind = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #else
    let kind = RLIMIT_NOFILE
    #endif
    getrlimit(kind, &limit)
    limit.rlim_cur = min(rlim_t(count), limit.rlim_max)
    precondition(setrlimit(kind, &limit) == 0, "setrlimit: errno \(errno)")
}

@Suite(.bounded, .tags(.threads, .memory)) struct ServerTests {
    @Test func `one loop echoes a thousand connections of another loop`() async {
        await #expect(processExitsWith: .success) {
            setDescriptorLimit(8_192)
            let server = try RunLoopThread(name: "server")
            let listener = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in
                echo(descriptor, on: server.runLoop)
            }
            server.runLoop.add(listener)
            let address = listener.localAddress!
            let count = 1_000
            let (answered, failed) = (Box(0), Box(0))
            try onFreshThread { loop in
                for number in 0..<count {
                    let word = "\(number)"
                    loop.add(
                        try RunLoop.SocketSource(connectingTo: address, timeout: patience) { _, result in
                            guard case .success(let descriptor) = result else {
                                failed.increment()
                                return
                            }
                            _ = write(descriptor, word, word.utf8.count)
                            let answer = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, _ in
                                if drain(descriptor) == word { answered.increment() }
                                source.invalidate()
                            }
                            answer.onInvalidation { close(descriptor) }
                            loop.add(answer)
                        })
                }
                #expect(loop.run(for: patience) == .finished)
            }
            #expect(answered.value == count && failed.value == 0)
            listener.invalidate()
            server.stop()
            #expect(await server.join(timeout: patience))
        }
    }

    @Test func `a listener pauses while there are no descriptors, and continues when there are some`() async {
        await #expect(processExitsWith: .success) {
            try inManualTime { loop, clock, _ in
                let accepted = Box<[Int64]>([])
                let folder = SocketFolder()
                let source = try RunLoop.SocketSource(listeningOn: .unix(path: folder.file())) { _, descriptor, _ in
                    accepted.change { $0.append(clock.ms) }
                    close(descriptor)
                }
                loop.add(source)
                _ = loop.run(for: .zero)
                let clients = (0..<3).map { _ in connectedClient(to: source.localAddress!) }
                let famine = Famine(on: loop)
                let enough = RunLoop.Timer(fireAt: .ms(20_000)) { _ in famine.end() }
                loop.add(enough)
                let passes = loop.statistics.passes
                #expect(loop.run(for: .seconds(30)) == .timedOut)
                // The pause is 5 ms at first and doubles up to one second: about thirty tries, each with two or three passes.
                #expect(loop.statistics.passes - passes < 120)
                #expect(accepted.value.count == 3)
                #expect(accepted.value.allSatisfy { $0 >= 20_000 && $0 <= 21_000 })
                #expect(source.isValid && source.isAccepting && source.failure == nil)
                // The next connection is accepted at once, because the pause is over.
                let late = connectedClient(to: source.localAddress!)
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(accepted.value.count == 4)
                for client in clients + [late] { close(client) }
                source.invalidate()
            }
        }
    }

    @Test func `a pause ends at once when isAccepting is set again, and when the source ends`() async {
        await #expect(processExitsWith: .success) {
            try inManualTime { loop, clock, trace in
                let folder = SocketFolder()
                let source = try listener(on: .unix(path: folder.file()), trace)
                loop.add(source)
                _ = loop.run(for: .zero)
                let clients = (0..<2).map { _ in connectedClient(to: source.localAddress!) }
                let first = Famine(on: loop)
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.description == "")
                first.end()
                // The listener is still paused.
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.description == "")
                source.isAccepting = false
                source.isAccepting = true
                #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.description == "accept" && clock.ms == 0)
                let second = Famine(on: loop)
                #expect(loop.run(for: .zero) == .timedOut)
                source.invalidate()
                // No timer is left behind.
                #expect(loop.run(for: .seconds(5)) == .finished)
                second.end()
                #expect(trace.description == "accept")
                for client in clients { close(client) }
            }
        }
    }
}

/// A time in which the process has no free descriptor. Each pass takes up the descriptors that other threads close.
private final class Famine: Sendable {
    private let fillers = Box<[Int32]>([])
    private let observer: RunLoop.Observer

    init(on loop: RunLoop) {
        setDescriptorLimit(UInt(lowestFreeDescriptor()) + 30)
        let fillers = fillers
        observer = RunLoop.Observer(activities: [.beforeTimers, .beforeSources]) { _, _ in
            while case let descriptor = dup(0), descriptor >= 0 { fillers.change { $0.append(descriptor) } }  // ends: descriptors run out
        }
        loop.add(observer)
    }

    func end() {
        observer.invalidate()
        setDescriptorLimit(1_000)
        for filler in fillers.value { close(filler) }
        fillers.value = []
    }
}
