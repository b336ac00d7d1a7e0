// libevent's bufferevents on a loop: pairs, sockets, filters, rate limits, deferred callbacks:
//  - Large transfers come back whole, also while handlers run other modes, or the same one, and while callbacks stop the run.
//  - The ends may be on two loops. The end of the peer, and a timeout, are reported.
//  - A thread ends while a transfer is in progress.

import CLibevent
import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct BuffereventTests {
    enum Disturbance: String, CaseIterable, Sendable { case none, nestedRuns, stops }

    @Test(arguments: Connection.allCases, Disturbance.allCases)
    func `a transfer comes back whole`(connection: Connection, disturbance: Disturbance) throws {
        for mode in hostModes {
            try onFreshThread { loop in
                let ends = try loop.withEventBase(forMode: mode) { try connection.make($0) }
                let calls = Box(0)
                let left = Countdown(1, on: loop)
                let start = RunLoop.Instant.now
                let timer = disturbance == .nestedRuns ? interrupt(loop, mode) { calls.value } : nil
                let echo = Echo(ends.1, calls: calls)
                let sender = Sender(ends.0, size: connection.size, calls: calls) { _ in left.done() }
                defer {
                    sender.free()
                    echo.free()
                }
                let pieces = Box(0)
                switch disturbance {
                case .none: break
                case .nestedRuns: sender.onPiece = { if pieces.increment() % 20 == 0 { runSilently(loop) { calls.value } } }
                case .stops: sender.onPiece = { if pieces.increment() % 5 == 0 { loop.stop() } }
                }
                try left.wait(in: mode, "the transfer over \(connection)")
                timer?.invalidate()
                #expect(sender.wrongPlace == nil)
                #expect(RunLoop.Instant.now - start >= connection.shortestTime)
            }
        }
    }

    @Test(arguments: hostModes)
    func `the ends may be on two loops`(mode: RunLoop.Mode) throws {
        let sockets = try socketPair()
        let host = try LibraryHost(
            mode, make: { loop in Echo(loop.withEventBase(forMode: mode) { bufferevent($0, sockets.1) }) }, free: { $0.free() })
        try onFreshThread { loop in
            let end = loop.withEventBase(forMode: mode) { bufferevent($0, sockets.0) }
            let left = Countdown(1, on: loop)
            let sender = Sender(end, size: 16_000_000, calls: Box(0)) { _ in left.done() }
            defer { sender.free() }
            try left.wait(in: mode, "the transfer")
            #expect(sender.wrongPlace == nil)
        }
        try host.end()
    }

    @Test(arguments: hostModes)
    func `the end of the peer, and a timeout, are reported`(mode: RunLoop.Mode) throws {
        try onFreshThread { loop in
            let ends = try loop.withEventBase(forMode: mode) { try Connection.sockets.make($0) }
            let peer = Box<UInt?>(UInt(bitPattern: ends.1))
            let reports = Reports(ends.0) { what in
                // After the timeout, the peer closes its end.
                if Int32(what) & BEV_EVENT_TIMEOUT != 0, let other = peer.value {
                    peer.value = nil
                    bufferevent_free(OpaquePointer(bitPattern: other))
                    // The timeout has disabled it.
                    bufferevent_enable(ends.0, Int16(EV_READ))
                } else {
                    loop.stop()
                }
            }
            defer { reports.free() }
            var time = timeval()
            time.tv_usec = 20_000
            bufferevent_set_timeouts(ends.0, &time, nil)
            bufferevent_enable(ends.0, Int16(EV_READ))
            #expect(loop.run(mode: mode, for: libraryPatience) == .stopped)
            #expect(reports.list == [BEV_EVENT_TIMEOUT | BEV_EVENT_READING, BEV_EVENT_EOF | BEV_EVENT_READING])
        }
    }

    @Test(arguments: Connection.allCases)
    func `a thread ends while a transfer is in progress`(connection: Connection) throws {
        for mode in hostModes {
            let calls = Box(0)
            let host = try LibraryHost(
                mode,
                make: { loop in
                    let ends = try loop.withEventBase(forMode: mode) { try connection.make($0) }
                    return (Echo(ends.1, calls: calls), Sender(ends.0, size: .max, calls: calls) { _ in })
                },
                free: { echo, sender in
                    sender.free()
                    echo.free()
                })
            try waitUntil("the transfer has begun", within: libraryPatience) { calls.value > 10 }
            try host.end()
        }
    }
}

/// The events that a bufferevent reports. On the loop's thread only.
private final class Reports: @unchecked Sendable {
    // SAFETY: used on the loop's thread only.
    let end: OpaquePointer
    private let body: (Int16) -> Void
    private(set) var list: [Int32] = []

    init(_ end: OpaquePointer, _ body: @escaping (Int16) -> Void) {
        (self.end, self.body) = (end, body)
        bufferevent_setcb(
            end, nil, nil,
            { _, what, context in
                let reports = Unmanaged<Reports>.fromOpaque(context!).takeUnretainedValue()
                reports.list.append(Int32(what))
                reports.body(what)
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    func free() { bufferevent_free(end) }
}
