// A gate, with which threads wait for each other without sleeping.

import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// One thread opens the gate; other threads wait for it.
public final class Gate: Sendable {
    private let pipe = Pipe()
    /// Both sides access this value, so that ThreadSanitizer sees the order of the two threads: waiting polls the pipe without reading it.
    private let openings = Box(0)
    public init() {}
    public func open() {
        openings.increment()
        pipe.write()
    }

    /// Records an issue if no thread opens the gate in time.
    public func wait(_ location: SourceLocation = #_sourceLocation) {
        do { try waitUntilReadable(pipe.readEnd, "somebody opens the gate", location) } catch {
            Issue.record(error, sourceLocation: location)
        }
        _ = openings.value
    }

    /// The same for a task, which must not block a thread of the pool that other tasks may need.
    public func waitInTask(_ location: SourceLocation = #_sourceLocation) async throws {
        try await suspendUntil("somebody opens the gate", location) {
            var entry = pollfd(fd: pipe.readEnd, events: Int16(POLLIN), revents: 0)
            return poll(&entry, 1, 0) == 1
        }
        _ = openings.value
    }
}
