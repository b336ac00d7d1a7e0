// Closed connections (semantics 4.4, 4.13):
//  - End of file, a hang-up or an error makes a source ready for all its events, so that the next read or write reports it.
//  - `.closed` says that the peer closed its end or shut down sending. It works alone: data neither calls the source nor spins the loop.
//  - A reset makes a source ready for all its events.
//  - A source without events is not called even after its peer has closed, and the loop sleeps.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory)) struct DescriptorHangUpTests {
    private typealias Events = RunLoop.DescriptorSource.Events

    /// A source of `events` on the near end of `pair`. Its handler records the ready events and stops the run.
    private static func record(_ events: RunLoop.DescriptorSource.Events, on pair: SocketPair, in trace: Trace, _ loop: RunLoop) throws {
        loop.add(
            try RunLoop.DescriptorSource(descriptor: pair.near, events: events) { _, ready in
                withExtendedLifetime(pair) { trace.add(describe(ready)) }
                loop.stop()
            })
    }

    @Test(arguments: [Events.read, .write, [.read, .write], .closed, [.read, .closed], [.write, .closed], [.read, .write, .closed]])
    func `a hang-up makes a source ready for all its events`(asked: RunLoop.DescriptorSource.Events) throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            try Self.record(asked, on: pair, in: trace, loop)
            pair.closeFarVisibly()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "\(describe(asked)) -> stopped")
    }

    @Test func `end of file on a pipe makes a source ready to read`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let ends = RawPipe()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: ends.readEnd, events: .read) { source, _ in
                    var byte: UInt8 = 0
                    trace.add("read \(read(ends.readEnd, &byte, 1))")
                    source.invalidate()
                })
            ends.closeWriteEnd()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S read 0 X -> finished")
    }

    @Test func `the write end of a pipe is ready to write after its last reader has closed`() throws {
        let trace = try inManualTime { loop, _, trace in
            let ends = RawPipe()
            // The pipe is full, so that only the error can make it ready, not free space.
            let block = [UInt8](repeating: 0, count: 65_536)
            while write(ends.writeEnd, block, block.count) > 0 {}
            loop.add(
                try RunLoop.DescriptorSource(descriptor: ends.writeEnd, events: .write) { _, events in
                    withExtendedLifetime(ends) { trace.add(describe(events)) }
                    loop.stop()
                })
            trace.add("full \(loop.run(until: .ms(10)));")
            ends.closeReadEnd()
            trace.add("broken \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "full timedOut; write broken stopped")
    }

    // MARK: closed

    @Test func `with closed alone, data neither calls the source nor spins the loop`() throws {
        let (trace, passes) = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pair = SocketPair()
            try Self.record(.closed, on: pair, in: trace, loop)
            trace.add("-> \(loop.run(until: .ms(10)));")
            pair.sendFromFar("data")
            trace.add("-> \(loop.run(until: .ms(20)));")
            pair.closeFarVisibly()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return (trace.description, loop.statistics.passes)
        }
        #expect(trace == "E T S W A X -> timedOut; E T S W A X -> timedOut; E T S closed X -> stopped")
        #expect(passes == 3)
    }

    @Test func `with closed alone, a hang-up ends a wait in real time`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let pair = SocketPair()
            try Self.record(.closed, on: pair, in: trace, loop)
            let other = plainThread {
                try waitUntilAsleep(loop)
                pair.sendFromFar("data")
                try waitUntilAsleep(loop)
                pair.closeFarVisibly()
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "closed -> stopped")
    }

    @Test func `with closed alone, a source works on a pipe`() throws {
        let trace = try inManualTime { loop, _, trace in
            let ends = RawPipe()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: ends.readEnd, events: .closed) { source, events in
                    withExtendedLifetime(ends) { trace.add(describe(events)) }
                    source.invalidate()
                })
            trace.add("open \(loop.run(until: .ms(10)));")
            ends.closeWriteEnd()
            trace.add("\(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "open timedOut; closed finished")
    }

    @Test func `a peer that shuts down sending has closed its end`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            try Self.record(.closed, on: pair, in: trace, loop)
            pair.shutDownFar()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "closed -> stopped")
    }

    @Test func `with read and closed, data is reported as read and the end as both`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            try Self.record([.read, .closed], on: pair, in: trace, loop)
            pair.sendFromFar("data")
            trace.add("\(loop.run(until: .ms(10)));")
            drain(pair.near)
            trace.add("\(loop.run(until: .ms(20)));")
            pair.sendFromFar("last words")
            pair.closeFarVisibly()
            trace.add("\(loop.run(until: .ms(30)))")
            return trace.description
        }
        #expect(trace == "read stopped; timedOut; read+closed stopped")
    }

    @Test func `a source that did not request closed does not receive it`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            try Self.record(.read, on: pair, in: trace, loop)
            pair.closeFarVisibly()
            _ = loop.run(until: .ms(10))
            return trace.description
        }
        #expect(trace == "read")
    }

    @Test func `a source for closed and a source for read on one descriptor each receive their own events only`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .closed) { source, events in
                    trace.add("watcher:\(describe(events))")
                    source.invalidate()
                })
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .read) { source, events in
                    let text = drain(pair.near)
                    trace.add("reader:\(text)")
                    if text.isEmpty { source.invalidate() }
                })
            pair.sendFromFar("data")
            trace.add("\(loop.run(until: .ms(10)));")
            pair.closeFarVisibly()
            _ = loop.run(until: .ms(20))
            return (trace.list.prefix(2) + trace.list.dropFirst(2).sorted()).joined(separator: " ")
        }
        #expect(trace == "reader:data timedOut; reader: watcher:closed")
    }

    @Test func `a one-shot source for closed is called once`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .closed, trigger: .oneShot) { _, events in
                    withExtendedLifetime(pair) { trace.add(describe(events)) }
                })
            pair.closeFarVisibly()
            trace.observe(loop)
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S closed T S W A X -> timedOut")
    }

    // MARK: Reset

    @Test(arguments: [Events.read, .write, [.read, .write], [.read, .write, .closed], .closed])
    func `a reset makes a source ready for all its events`(asked: RunLoop.DescriptorSource.Events) throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let connection = try ResetConnection()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: connection.near, events: asked) { _, events in
                    withExtendedLifetime(connection) { trace.add(describe(events)) }
                    loop.stop()
                })
            trace.add("-> \(loop.run(for: patience))")
            return trace.description
        }
        #expect(trace == "\(describe(asked)) -> stopped")
    }

    // MARK: No events

    @Test func `without events a source is not called after its peer has closed, keeps its mode alive, and the loop sleeps`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pair = SocketPair()
            try Self.record([], on: pair, in: trace, loop)
            pair.sendFromFar("data")
            pair.closeFarVisibly()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S W A X -> timedOut")
    }
}

/// One end of a TCP connection on this host. The other end has just reset the connection without reading: this end's send buffer is full,
/// so that only the reset can make it writable.
private final class ResetConnection: Sendable {
    let near: Int32

    init() throws {
        let listener = socket(AF_INET, SocketKind.stream, 0)
        defer { close(listener) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        near = socket(AF_INET, SocketKind.stream, 0)
        let descriptor = near
        let far = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { name in
                precondition(bind(listener, name, length) == 0, "bind: errno \(errno)")
                precondition(listen(listener, 1) == 0)
                precondition(getsockname(listener, name, &length) == 0)
                precondition(connect(descriptor, name, length) == 0, "connect: errno \(errno)")
                return accept(listener, nil, nil)
            }
        }
        precondition(far >= 0, "accept: errno \(errno)")
        for end in [near, far] { precondition(fcntl(end, F_SETFD, FD_CLOEXEC) == 0) }
        precondition(fcntl(near, F_SETFL, O_NONBLOCK) == 0)
        let block = [UInt8](repeating: 0, count: 65_536)
        while write(near, block, block.count) > 0 {}  // ends: nothing reads, so the buffer fills up
        // Closing with a linger time of zero sends a reset (RFC 9293, 3.10.4; socket(7), SO_LINGER).
        var linger = linger(l_onoff: 1, l_linger: 0)
        precondition(setsockopt(far, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger))) == 0)
        close(far)
        // A busy kernel delivers it later, and what it delivers before makes this end writable.
        waitForHangUp(of: near)
    }

    deinit { close(near) }
}
