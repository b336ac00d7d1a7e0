// Rules proved here (SocketSource.swift, ListeningSocket.swift):
// - A listener listens on IPv4, IPv6, Unix paths and abstract names. For port 0 the kernel chooses a port. Descriptors are non-blocking and
//   close-on-exec.
// - Each call of `accept` receives one connection. A pass makes up to 16 calls, none after a stop, and one if the run returns after a source.
//   `isAccepting` pauses the listener.
// - It behaves like any other source: it is held while other modes run, accepts each connection once even if it is in several loops, and
//   can be invalidated from its own handler.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory)) struct ListenerTests {
    @Test(arguments: AddressKind.present)
    func `a connection is accepted, and a loop can watch its descriptor`(kind: AddressKind) throws {
        let folder = SocketFolder()
        try onFreshThread { loop in
            let peers = Box<[SocketAddress]>([])
            let source = try RunLoop.SocketSource(listeningOn: kind.address(in: folder), label: "test") { source, descriptor, peer in
                #expect(loop.isCurrent && isNonBlockingAndCloseOnExec(descriptor))
                #expect(write(descriptor, "hello", 5) == 5)
                close(descriptor)
                peers.change { $0.append(peer) }
            }
            loop.add(source)
            #expect(isNonBlockingAndCloseOnExec(source.descriptor))
            let address = try #require(source.localAddress)
            #expect(address.port != 0)
            let client = connectedClient(to: address)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(drain(client) == "hello")
            switch kind {
            case .ipv4: #expect(peers.value.first.map { "\($0)".hasPrefix("127.0.0.1:") } == true)
            case .ipv6: #expect(peers.value.first.map { "\($0)".hasPrefix("[::1]:") } == true)
            case .unix, .abstract: #expect(peers.value == [.unix(path: "")] && address == kind.address(in: folder))
            }
            close(client)
            source.invalidate()
            #expect(source.descriptor == -1 && source.localAddress == address)
        }
    }

    @Test(.enabled(if: hasIPv6, "this machine has no IPv6"))
    func `a listener on any IPv6 address accepts IPv4 too, unless it is asked not to`() throws {
        try onFreshThread { loop in
            let peers = Box<[SocketAddress]>([])
            let source = try RunLoop.SocketSource(listeningOn: .ipv6(host: "::", port: 0)) { _, descriptor, peer in
                close(descriptor)
                peers.change { $0.append(peer) }
            }
            loop.add(source)
            let port = try #require(source.localAddress?.port)
            let clients = [
                connectedClient(to: .ipv4(host: "127.0.0.1", port: port)), connectedClient(to: .ipv6(host: "::1", port: port)),
            ]
            while peers.value.count < 2 {  // ends: both arrive, or the time limit passes
                guard loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource else { break }
            }
            #expect(peers.value.contains { "\($0)".hasPrefix("[::ffff:127.0.0.1]:") })
            #expect(peers.value.contains { "\($0)".hasPrefix("[::1]:") })
            for client in clients { close(client) }
            source.invalidate()

            // The same port number is free for IPv4, unless another test has it by chance: then another number.
            try whenFree {
                let only = try RunLoop.SocketSource(listeningOn: .ipv6(host: "::", port: 0), ipv6Only: true) { _, _, _ in }
                defer { only.invalidate() }
                let onlyPort = try #require(only.localAddress?.port)
                try RunLoop.SocketSource(listeningOn: .ipv4(host: "0.0.0.0", port: onlyPort)) { _, _, _ in }.invalidate()
            }
        }
    }

    @Test func `each connection causes one call, and a run that returns after a source accepts one`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let folder = SocketFolder()
            let source = try listener(on: .unix(path: folder.file()), trace)
            loop.add(source)
            trace.observe(loop)
            let clients = (0..<4).map { _ in connectedClient(to: source.localAddress!) }
            for _ in 0..<2 {
                #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.take() == "E T S accept X")
            }
            let stopping = RunLoop.Observer(activities: .beforeWaiting) { _, _ in loop.stop() }
            loop.add(stopping)
            _ = loop.run(for: patience)
            #expect(trace.take() == "E T S accept accept T S W A X")
            for client in clients { close(client) }
            source.invalidate()
        }
    }

    @Test func `a pass accepts the connections that wait, and no more than 16, so that others have their turns`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let folder = SocketFolder()
            let source = try listener(on: .unix(path: folder.file()), trace)
            loop.add(source)
            let clients = (0..<35).map { _ in connectedClient(to: source.localAddress!) }
            let counts = (0..<4).map { _ in
                _ = loop.run(for: .zero)
                return trace.take().split(separator: " ").count
            }
            #expect(counts == [16, 16, 3, 0])
            for client in clients { close(client) }
            source.invalidate()
        }
    }

    /// What a handler may do after which its pass must not accept another connection; and nothing, after which it must.
    enum Ending: CaseIterable { case nothing, stop, pause, remove, invalidate, nestedRun }

    @Test(arguments: Ending.allCases)
    func `after its handler has ended its turn, a listener accepts no more in the pass`(ending: Ending) throws {
        try onFreshThread { loop in
            let trace = Trace()
            let folder = SocketFolder()
            let other = RunLoop.Mode("other")
            let alive = [RunLoop.Mode.default, other].map { loop.keepAlive(forMode: $0) }
            let source = try listener(on: .unix(path: folder.file()), trace) { source in
                switch ending {
                case .nothing: break
                case .stop: loop.stop()
                case .pause: source.isAccepting = false
                case .remove: loop.remove(source)
                case .invalidate: source.invalidate()
                case .nestedRun: _ = loop.run(mode: other, for: .zero)
                }
            }
            loop.add(source)
            let clients = (0..<3).map { _ in connectedClient(to: source.localAddress!) }
            #expect(loop.run(for: .zero) == (ending == .stop ? .stopped : .timedOut))
            #expect(trace.description == (ending == .nothing ? "accept accept accept" : "accept"))
            for client in clients { close(client) }
            for keepAlive in alive { keepAlive.cancel() }
            source.invalidate()
        }
    }

    @Test func `a paused listener accepts nothing and keeps its mode, and the connections wait`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let folder = SocketFolder()
            let source = try listener(on: .unix(path: folder.file()), trace) { source in source.isAccepting = false }
            loop.add(source)
            #expect(source.isAccepting)
            let clients = (0..<3).map { _ in connectedClient(to: source.localAddress!) }
            for number in 1...3 {
                source.isAccepting = true
                #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
                #expect(!source.isAccepting)
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.list.count == number)
            }
            for client in clients { close(client) }
            source.invalidate()
        }
    }

    /// 1. A server that has room again reads under its lock which listeners to resume.
    /// 2. Another thread shuts it down: what waits is for others who have the socket.
    /// 3. The first thread resumes the listeners.
    @Test func `an adopted listener that refuses connections accepts none when another thread resumes it late`() throws {
        try onFreshThread { loop in
            let folder = SocketFolder()
            let accepted = Box(0)
            let kept = try RunLoop.SocketSource(listeningOn: .unix(path: folder.file())) { _, descriptor, _ in close(descriptor) }
            let copy = fcntl(kept.descriptor, F_DUPFD_CLOEXEC, 0)
            let source = try RunLoop.SocketSource(adoptingListener: copy) { _, descriptor, _ in
                close(descriptor)
                accepted.increment()
            }
            loop.add(source)
            let first = connectedClient(to: kept.localAddress!)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            source.isAccepting = false
            source.refuseConnections()
            source.isAccepting = true
            #expect(!source.isAccepting)
            let second = connectedClient(to: kept.localAddress!)
            for _ in 0..<3 { #expect(loop.run(for: .zero) == .timedOut) }
            #expect(accepted.value == 1)
            // The server still takes from the queue by itself.
            var taken = 0
            let isEmpty = source.acceptWaiting(limit: 2) { descriptor in
                close(descriptor)
                taken += 1
            }
            #expect(isEmpty && taken == 1)
            for client in [first, second] { close(client) }
            source.invalidate()
            kept.invalidate()
        }
    }

    @Test func `connections that arrive while other modes run wait`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let other = RunLoop.Mode("other")
            let source = try listener(trace)
            loop.add(source)
            let alive = loop.keepAlive(forMode: other)
            let client = connectedClient(to: source.localAddress!)
            #expect(loop.run(mode: other, for: .zero) == .timedOut)
            #expect(trace.description == "")
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.description == "accept")
            close(client)
            alive.cancel()
            source.invalidate()
        }
    }

    @Test func `a listener invalidated in its own handler accepts no more, and its port is free in onInvalidation`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = try listener(trace) { source in source.invalidate() }
            let address = source.localAddress!
            let clients = (0..<2).map { _ in connectedClient(to: address) }
            let again = Box<RunLoop.SocketSource?>(nil)
            source.onInvalidation {
                trace.add("ended")
                again.value = try? whenFree { try RunLoop.SocketSource(listeningOn: address) { _, _, _ in } }
            }
            loop.add(source)
            #expect(loop.run(for: patience) == .finished)
            #expect(trace.description == "accept ended")
            #expect(again.value?.localAddress == address)
            again.value?.invalidate()
            for client in clients { close(client) }
        }
    }

    @Test func `a listener in several loops accepts each connection once`() throws {
        let accepted = Box(0)
        let threads = try (0..<3).map { try RunLoopThread(name: "server \($0)") }
        let source = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in
            accepted.increment()
            close(descriptor)
        }
        for thread in threads { thread.runLoop.add(source) }
        let count = 200 / roundsDivisor
        for _ in 0..<count { close(connectedClient(to: source.localAddress!)) }
        try waitUntil { accepted.value >= count }
        source.invalidate()
        for thread in threads {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        #expect(accepted.value == count)
    }

    @Test func `two listeners share a port only if both ask for it`() throws {
        let first = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0), reusePort: true) { _, _, _ in }
        let address = try #require(first.localAddress)
        let second = try RunLoop.SocketSource(listeningOn: address, reusePort: true) { _, _, _ in }
        #expect(second.localAddress == address)
        #expect(throws: RunLoop.SourceError.system(operation: "bind \(address)", errno: EADDRINUSE)) {
            try RunLoop.SocketSource(listeningOn: address) { _, _, _ in }
        }
        first.invalidate()
        second.invalidate()
    }

    @Test func `a listener fails if other code has shut down its socket`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = try listener(trace)
            loop.add(source)
            let address = try #require(source.localAddress)
            shutdown(source.descriptor, Int32(SHUT_RDWR))
            #expect(loop.run(for: patience) == .finished)
            #expect(source.failure == .system(operation: "accept on \(address)", errno: EINVAL))
            #expect(trace.description == "")
        }
    }

    @Test func `a source that is dropped, or whose loop ends, closes its socket`() throws {
        let addresses = try onFreshThread { loop in
            let trace = Trace()
            var dropped: RunLoop.SocketSource? = try listener(trace)
            let first = dropped!.localAddress!
            dropped = nil
            let inLoop = try listener(trace)
            loop.add(inLoop)
            _ = loop.run(for: .zero)
            return [first, inLoop.localAddress!]
        }
        for address in addresses {
            try whenFree { try RunLoop.SocketSource(listeningOn: address) { _, _, _ in } }.invalidate()
        }
    }
}
