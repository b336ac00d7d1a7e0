// Bufferevents that send a known sequence of bytes, and get it back from an echo.
//
// Lifecycle of a bufferevent: its owner here (`Sender` or `Echo`) frees it, by `free` on the loop's thread. A filter frees the bufferevent
// under it.

import CLibevent
import EventLoop
import TestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The byte at each place is the place modulo 251.
private let pattern: [UInt8] = (0..<(65_536 + 251)).map { UInt8($0 % 251) }
private let pieceSize = 65_536

/// Sends `size` bytes and checks that they come back. On the loop's thread only.
final class Sender {
    private let end: OpaquePointer
    private let size: Int
    private let onEnd: (Sender) -> Void
    private var sent = 0
    private var received = 0
    /// How many callbacks there were.
    let calls: Box<Int>
    /// The place of the first wrong byte's piece.
    private(set) var wrongPlace: Int?
    /// Called for each piece that came back, inside libevent.
    var onPiece: (() -> Void)?

    init(_ end: OpaquePointer, size: Int, calls: Box<Int>, onEnd: @escaping (Sender) -> Void) {
        (self.end, self.size, self.calls, self.onEnd) = (end, size, calls, onEnd)
        bufferevent_setcb(
            end, { _, context in Unmanaged<Sender>.fromOpaque(context!).takeUnretainedValue().receive() },
            { _, context in Unmanaged<Sender>.fromOpaque(context!).takeUnretainedValue().sendMore() }, nil,
            Unmanaged.passUnretained(self).toOpaque())
        bufferevent_enable(end, Int16(EV_READ | EV_WRITE))
        sendMore()
    }

    func free() { bufferevent_free(end) }

    /// libevent calls it when everything before has been written.
    private func sendMore() {
        calls.increment()
        let count = min(pieceSize, size - sent)
        if count == 0 { return }
        let place = sent
        // Before the write, because a filter asks for more inside it.
        sent += count
        pattern.withUnsafeBytes { _ = bufferevent_write(end, $0.baseAddress! + place % 251, count) }
    }

    private func receive() {
        calls.increment()
        let input = bufferevent_get_input(end)
        var room = [UInt8](repeating: 0, count: pieceSize)
        // The callback comes for new bytes only.
        while evbuffer_get_length(input) > 0 {  // ends: each turn takes bytes, and new ones come with the next callback
            let count = bufferevent_read(end, &room, room.count)
            let isRight = pattern.withUnsafeBytes { memcmp(room, $0.baseAddress! + received % 251, count) == 0 }
            if !isRight && wrongPlace == nil { wrongPlace = received }
            received += count
            onPiece?()
        }
        if received == size { onEnd(self) }
    }
}

/// Sends back what it receives. On the loop's thread only.
final class Echo {
    private let end: OpaquePointer
    let calls: Box<Int>

    init(_ end: OpaquePointer, calls: Box<Int> = Box(0)) {
        (self.end, self.calls) = (end, calls)
        bufferevent_setcb(
            end,
            { end, context in
                Unmanaged<Echo>.fromOpaque(context!).takeUnretainedValue().calls.increment()
                bufferevent_write_buffer(end, bufferevent_get_input(end))
            }, nil, nil, Unmanaged.passUnretained(self).toOpaque())
        bufferevent_enable(end, Int16(EV_READ | EV_WRITE))
    }

    func free() { bufferevent_free(end) }
}

/// How the two ends are connected.
enum Connection: String, CaseIterable, Sendable {
    case pair, sockets, deferredSockets, filters, deferredFilters, rateLimited

    /// Swift's debug build changes a byte of the filter in some ten nanoseconds.
    var size: Int {
        switch self {
        case .pair, .sockets, .deferredSockets: 16_000_000
        case .filters, .deferredFilters: 1_000_000
        case .rateLimited: 200_000
        }
    }

    func make(_ base: OpaquePointer) throws -> (OpaquePointer, OpaquePointer) {
        switch self {
        case .pair:
            var ends: [OpaquePointer?] = [nil, nil]
            guard bufferevent_pair_new(base, 0, &ends) == 0 else { throw SystemFailure("bufferevent_pair_new") }
            return (ends[0]!, ends[1]!)
        case .sockets, .deferredSockets:
            let sockets = try socketPair()
            let options = self == .sockets ? 0 : Int32(BEV_OPT_DEFER_CALLBACKS.rawValue)
            return (bufferevent(base, sockets.0, options), bufferevent(base, sockets.1, options))
        case .filters, .deferredFilters:
            let ends = try Connection.sockets.make(base)
            let options = self == .filters ? 0 : Int32(BEV_OPT_DEFER_CALLBACKS.rawValue)
            return (filter(ends.0, options), filter(ends.1, options))
        case .rateLimited:
            let ends = try Connection.sockets.make(base)
            bufferevent_set_rate_limit(ends.0, Self.rate)
            return ends
        }
    }

    /// 16,000 bytes in each direction every 20 ms. Kept for the whole process, because bufferevents refer to it until they are freed.
    // SAFETY: made once, and never changed.
    private nonisolated(unsafe) static let rate: OpaquePointer = {
        let rate = 16_000
        var tick = timeval()
        tick.tv_usec = 20_000
        return ev_token_bucket_cfg_new(rate, rate, rate, rate, &tick)
    }()

    /// What the rate allows: the first piece comes at once, and each further one a tick later. The tolerance is for libevent's coarse clock.
    var shortestTime: Duration { self == .rateLimited ? .milliseconds(20) * (size / 16_000 - 1) / 2 : .zero }
}

func bufferevent(_ base: OpaquePointer, _ descriptor: Int32, _ options: Int32 = 0) -> OpaquePointer {
    bufferevent_socket_new(base, descriptor, Int32(BEV_OPT_CLOSE_ON_FREE.rawValue) | options)
}

/// Two connected sockets that do not block.
func socketPair() throws -> (Int32, Int32) {
    var ends: [Int32] = [-1, -1]
    guard evutil_socketpair(AF_UNIX, 1, 0, &ends) == 0 else { throw SystemFailure("evutil_socketpair") }  // 1 is SOCK_STREAM
    for end in ends {
        evutil_make_socket_nonblocking(end)
        evutil_make_socket_closeonexec(end)
    }
    return (ends[0], ends[1])
}

/// Every byte is inverted on the wire.
private func filter(_ under: OpaquePointer, _ options: Int32) -> OpaquePointer {
    let invert: bufferevent_filter_cb = { source, target, limit, _, _ in
        var room = [UInt8](repeating: 0, count: 16_384)
        let allowed = limit < 0 ? room.count : min(room.count, Int(limit))
        let count = Int(evbuffer_remove(source, &room, allowed))
        if count <= 0 { return BEV_NEED_MORE }
        for place in 0..<count { room[place] = ~room[place] }
        evbuffer_add(target, room, count)
        return BEV_OK
    }
    // Without this limit, libevent asks for more to write until there is no more, inside one call.
    bufferevent_setwatermark(under, Int16(EV_WRITE), 0, 256_000)
    return bufferevent_filter_new(under, invert, invert, Int32(BEV_OPT_CLOSE_ON_FREE.rawValue) | options, nil, nil)
}
