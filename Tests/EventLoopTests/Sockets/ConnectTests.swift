// Rules proved here (SocketSource.swift, ConnectAttempt.swift):
// - The source reports the outcome once, as a handled source, in one of its modes. Then the source is invalid, and the caller owns the
//   descriptor.
// - The source reports errors instead of throwing them, even if the kernel knows an error at once. The limit uses the loop's time and
//   passes in every mode of the source.
// - If a Unix socket has no room, the source tries again.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private func connection(
    to address: SocketAddress, timeout: Duration? = nil, _ trace: Trace, then body: @escaping @Sendable (Int32) -> Void = { close($0) }
) throws -> RunLoop.SocketSource {
    try RunLoop.SocketSource(connectingTo: address, timeout: timeout) { source, result in
        #expect(!source.isValid)
        switch result {
        case .success(let descriptor):
            #expect(isNonBlockingAndCloseOnExec(descriptor))
            trace.add("connected")
            body(descriptor)
        case .failure(.system("connect \(address)", ECONNREFUSED)): trace.add("refused")
        case .failure(.system("connect \(address)", ETIMEDOUT)): trace.add("timed out")
        case .failure(.system("connect \(address)", ENOENT)): trace.add("nobody")
        case .failure(let error): trace.add("\(error)")
        }
    }
}

@Suite(.bounded, .tags(.memory, .threads)) struct ConnectTests {
    @Test(arguments: AddressKind.present)
    func `the handler receives the connection, and the source is invalid afterwards`(kind: AddressKind) throws {
        let folder = SocketFolder()
        try onFreshThread { loop in
            let trace = Trace()
            let server = DeafListener(kind.address(in: folder), room: 5)
            let source = try connection(to: server.address, trace) { descriptor in
                // A loop can watch the descriptor at once.
                let writer = try? RunLoop.DescriptorSource(descriptor: descriptor, events: .write) { writer, _ in
                    trace.add("writable")
                    writer.invalidate()
                }
                writer?.onInvalidation { close(descriptor) }
                if let writer { loop.add(writer) }
            }
            #expect(source.descriptor >= 0 && !source.isAccepting)
            source.onInvalidation { trace.add("ended") }
            loop.add(source)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "connected ended")
            #expect(source.descriptor == -1 && source.localAddress == nil)
            #expect(loop.run(for: patience) == .finished)
            #expect(trace.take() == "writable")
        }
    }

    @Test(arguments: [
        (SocketAddress.ipv4(host: "127.0.0.1", port: 1), "refused"), (.unix(path: "/tmp/eventloop-nobody-listens-here"), "nobody"),
    ])
    func `an error is reported once, and counts as a handled source`(address: SocketAddress, said: String) throws {
        try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            let source = try connection(to: address, timeout: patience, trace)
            source.onInvalidation { trace.add("ended") }
            loop.add(source)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.description == said + " ended")
            #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .timedOut)
            #expect(source.descriptor == -1)
            alive.cancel()
        }
    }

    @Test(arguments: [AddressKind.ipv4, .unix])
    func `a limit in the loop's time ends an attempt that hangs`(kind: AddressKind) throws {
        let folder = SocketFolder()
        let server = DeafListener(kind.address(in: folder))
        server.fill()
        try inManualTime { loop, clock, trace in
            clock.advance(by: .seconds(3))
            let source = try connection(to: server.address, timeout: .seconds(10), trace)
            // The time begins when the source is added.
            clock.advance(by: .seconds(4))
            loop.add(source)
            let alive = loop.keepAlive()
            #expect(loop.run(for: .seconds(60), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.description == "timed out")
            #expect(clock.now == .ms(17_000))
            #expect(source.descriptor == -1)
            alive.cancel()
        }
    }

    @Test(arguments: [AddressKind.ipv4, .unix])
    func `the limit passes in every mode of the source`(kind: AddressKind) throws {
        let folder = SocketFolder()
        let server = DeafListener(kind.address(in: folder))
        server.fill()
        for mode in [RunLoop.Mode.common, RunLoop.Mode("first"), RunLoop.Mode("second")] {
            try inManualTime { loop, clock, trace in
                loop.addCommonMode(RunLoop.Mode("second"))
                let source = try connection(to: server.address, timeout: .seconds(1), trace)
                loop.add(source, forMode: mode)
                // The outcome is held while the source is in no mode, or another mode runs.
                let elsewhere = RunLoop.Mode("elsewhere")
                let alive = loop.keepAlive(forMode: elsewhere)
                #expect(loop.run(mode: elsewhere, for: .seconds(5)) == .timedOut)
                #expect(trace.description == "")
                let runs = mode == .common ? RunLoop.Mode("second") : mode
                #expect(loop.run(mode: runs, for: .seconds(5), returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.description == "timed out" && clock.now == .ms(5_000))
                alive.cancel()
            }
        }
    }

    @Test func `a connection that exists when the limit is checked is a success`() throws {
        let server = DeafListener(.ipv4(host: "127.0.0.1", port: 0), room: 5)
        for timeout in [Duration.zero, .seconds(-5), .milliseconds(1)] {
            try inManualTime { loop, clock, trace in
                let source = try connection(to: server.address, timeout: timeout, trace)
                loop.add(source)
                clock.advance(by: .seconds(1))
                #expect(loop.run(for: .seconds(5)) == .finished)
                #expect(trace.description == "connected")
                server.acceptOne()
            }
        }
    }

    @Test func `an outcome that the kernel knows when the limit passes is reported, even if it is an error`() throws {
        // The check removed the error from the socket, and the source then reported that it was not connected (ENOTCONN).
        try inManualTime { loop, clock, trace in
            let source = try connection(to: .ipv4(host: "127.0.0.1", port: 1), timeout: .seconds(1), trace)
            loop.add(source)
            // Timers come first: the limit checks the socket before the loop does.
            clock.advance(by: .seconds(1))
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.description == "refused")
        }
    }

    @Test func `a Unix socket without room is tried again, and connects when there is room`() throws {
        let folder = SocketFolder()
        let server = DeafListener(.unix(path: folder.file()))
        server.fill()
        try inManualTime { loop, clock, trace in
            let source = try connection(to: server.address, trace)
            loop.add(source)
            let timer = RunLoop.Timer(fireAt: .ms(2_000)) { _ in
                server.acceptOne()
                trace.add("room")
            }
            loop.add(timer)
            #expect(loop.run(for: .seconds(60)) == .finished)
            #expect(trace.description == "room connected")
            #expect(clock.now <= .ms(2_100))
        }
    }

    @Test func `a source removed before its report reports where it is added again, and an invalidated source does not report`() throws {
        let server = DeafListener(.ipv4(host: "127.0.0.1", port: 0))
        server.fill()
        try onFreshThread { loop in
            let trace = Trace()
            let other = RunLoop.Mode("other")
            let sources = try (0..<2).map { _ in try connection(to: server.address, timeout: .zero, trace) }
            for source in sources { loop.add(source) }
            // The limit has passed when the pass ends. The next pass would report the outcome.
            let observer = RunLoop.Observer(activities: .beforeTimers) { observer, _ in
                if trace.list.count == 1 {
                    loop.remove(sources[0])
                    sources[1].invalidate()
                    observer.invalidate()
                }
                trace.add("T")
            }
            loop.add(observer)
            let alive = loop.keepAlive()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "T T")
            loop.add(sources[0], forMode: other)
            #expect(loop.run(mode: other, for: patience) == .finished)
            #expect(trace.take() == "timed out")
            #expect(sources[1].descriptor == -1)
            alive.cancel()
        }
    }

    @Test func `the end of an attempt moves with its source to another mode`() throws {
        let server = DeafListener(.ipv4(host: "127.0.0.1", port: 0))
        server.fill()
        try inManualTime { loop, _, _ in
            let (trace, other) = (Trace(), RunLoop.Mode("other"))
            let source = try connection(to: server.address, timeout: .zero, trace)
            loop.add(source)
            // The limit passes in this pass. The source leaves before the next pass, which would report it.
            #expect(loop.run(for: .zero) == .timedOut)
            loop.remove(source)
            loop.add(source, forMode: other)
            #expect(loop.run(mode: other, for: .seconds(60), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.description == "timed out")
        }
    }

    @Test func `the end of an attempt moves with its source to another loop`() throws {
        let server = DeafListener(.ipv4(host: "127.0.0.1", port: 0))
        server.fill()
        let trace = Trace()
        let source = try connection(to: server.address, timeout: .zero, trace)
        try onFreshThread { loop in
            loop.add(source)
            let alive = loop.keepAlive()
            #expect(loop.run(for: .zero) == .timedOut)
            loop.remove(source)
            try inManualTime { loop, _, _ in
                loop.add(source)
                #expect(loop.run(for: .seconds(60)) == .finished)
                #expect(trace.description == "timed out")
            }
            alive.cancel()
        }
        withExtendedLifetime(server) {}
    }

    @Test(arguments: [AddressKind.ipv4, .unix])
    func `a source in several loops reports the outcome once, and the connection works`(kind: AddressKind) throws {
        let folder = SocketFolder()
        let server = DeafListener(kind.address(in: folder), room: 100)
        for round in 0..<40 / min(roundsDivisor, 4) {
            let trace = Trace()
            let threads = try (0..<3).map { try RunLoopThread(name: "loop \($0)") }
            let bad = SocketAddress.unix(path: folder.file("nobody"))
            let source = try connection(to: round % 4 == 0 ? bad : server.address, timeout: .seconds(100), trace) { descriptor in
                #expect(write(descriptor, "x", 1) == 1)
                close(descriptor)
            }
            let ended = Box(false)
            source.onInvalidation { ended.value = true }
            for thread in threads { thread.runLoop.add(source) }
            try waitUntil { ended.value }
            for thread in threads {
                thread.stop()
                #expect(thread.join(timeout: patience))
            }
            #expect(trace.description == (round % 4 == 0 ? "nobody" : "connected"))
        }
    }

    @Test func `connections come and go on several threads, and no descriptor is left open`() async {
        await #expect(processExitsWith: .success) {
            let server = DeafListener(.ipv4(host: "127.0.0.1", port: 0))
            server.fill()
            let lowest = try onFreshThread { loop in
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                return try (0..<60).map { round in
                    let source = try RunLoop.SocketSource(connectingTo: server.address, timeout: .milliseconds(round % 3)) { _, result in
                        if case .success(let descriptor) = result { close(descriptor) }
                    }
                    loop.add(source)
                    let other = plainThread { if round % 2 == 0 { source.invalidate() } }
                    _ = loop.run(for: .milliseconds(2))
                    try other.join()
                    source.invalidate()
                    _ = loop.run(for: .zero)
                    return lowestFreeDescriptor()
                }
            }
            // The first round makes the loop's base, and the test process itself opens a descriptor now and then.
            #expect(lowest.last! < lowest[1] + 20)
        }
    }
}
