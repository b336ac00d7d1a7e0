// Threads that meet without sleeping.

import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Opened by one thread, waited for by others.
public final class Gate: Sendable {
    private let pipe = Pipe()
    /// Touched on both sides: ThreadSanitizer takes a read for an order of two threads, and a gate is only looked at.
    private let openings = Box(0)
    public init() {}
    public func open() {
        openings.increment()
        pipe.write()
    }

    /// Records an issue if nobody opens it in time.
    public func wait(_ location: SourceLocation = #_sourceLocation) {
        do { try waitUntilReadable(pipe.readEnd, "somebody opens the gate", location) } catch {
            Issue.record(error, sourceLocation: location)
        }
        _ = openings.value
    }

    /// The same for a task, which must not block a thread of the pool that somebody may need.
    public func waitInTask(_ location: SourceLocation = #_sourceLocation) async throws {
        try await suspendUntil("somebody opens the gate", location) {
            var entry = pollfd(fd: pipe.readEnd, events: Int16(POLLIN), revents: 0)
            return poll(&entry, 1, 0) == 1
        }
        _ = openings.value
    }
}
