// Hosts for tests of hosted loops: what drives a loop through its descriptor.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The system call that a host waits with.
enum HostKind: CaseIterable, Sendable { case poll, epoll }

/// A loop that is not ours, of the plainest kind.
final class PlainHost: @unchecked Sendable {
    // SAFETY: used on the thread of the loop that it drives.
    let hosted: RunLoop.HostedLoop
    /// The host's own set, or -1 if it waits with poll.
    private let set: Int32
    private(set) var steps = 0

    init(_ loop: RunLoop, mode: RunLoop.Mode = .default, _ kind: HostKind = .poll) throws {
        hosted = try loop.hosted(mode: mode)
        set = kind == .epoll ? makeSet(with: hosted.descriptor) : -1
    }

    deinit { if set >= 0 { close(set) } }

    /// Whether the host would call `step()` now.
    var isReady: Bool { isReadable(set >= 0 ? set : hosted.descriptor) }

    @discardableResult
    func step() -> RunLoop.RunResult {
        steps += 1
        return hosted.step()
    }

    /// Drives the loop until it has nothing to do, and returns how many steps that took.
    @discardableResult
    func stepUntilQuiet(_ location: SourceLocation = #_sourceLocation) throws -> Int {
        let before = steps
        while isReady {  // ends: by the bound
            step()
            guard steps - before < 1_000 else { throw WaitedTooLong(for: "the descriptor is quiet", location) }
        }
        return steps - before
    }

    /// Drives the loop until `condition` holds, and sleeps while the descriptor is quiet.
    func run(_ what: String, _ location: SourceLocation = #_sourceLocation, until condition: () -> Bool) throws {
        while !condition() {  // ends: the wait has a bound
            try waitUntilReadable(set >= 0 ? set : hosted.descriptor, what, location)
            step()
        }
    }
}

func isReadable(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, 0) > 0
}

#if os(Linux)
// Glibc's overlay names the constants differently in every release.
@_silgen_name("epoll_create1") private func systemEpollCreate(_ flags: Int32) -> Int32
@_silgen_name("epoll_ctl") private func systemEpollControl(_ set: Int32, _ operation: Int32, _ descriptor: Int32, _ event: UnsafeRawPointer)
    -> Int32

private func makeSet(with descriptor: Int32) -> Int32 {
    let set = systemEpollCreate(0o2000000)  // EPOLL_CLOEXEC
    // `struct epoll_event` begins with its events on every platform; the rest is ours.
    var event: (events: UInt32, data: UInt32, more: UInt64) = (1, 0, 0)  // EPOLLIN
    precondition(set >= 0 && systemEpollControl(set, 1, descriptor, &event) == 0, "epoll: errno \(errno)")
    return set
}
#else
private func makeSet(with descriptor: Int32) -> Int32 { -1 }
#endif

/// As `onFreshThread`, with a host that drives the loop.
@discardableResult
func inHost<R: Sendable>(
    _ kind: HostKind = .poll, mode: RunLoop.Mode = .default, _ location: SourceLocation = #_sourceLocation,
    _ body: @escaping @Sendable (_ loop: RunLoop, _ host: PlainHost, _ trace: Trace) throws -> R
) throws -> R {
    try onFreshThread(location) { loop in
        let host = try PlainHost(loop, mode: mode, kind)
        defer { host.hosted.invalidate() }
        return try body(loop, host, Trace())
    }
}
