// For tests that run many cases, any of which may hang in the library without a callout. Only the end of the process ends such a hang.

import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Ends the process if a case takes longer than ten minutes, and names that case.
public final class CaseWatchdog: Sendable {
    private let current = Box("")
    private let count = Box(0)
    private let over = Pipe()

    public init() {
        let (current, count, over) = (current, count, over)
        let thread = plainThread {
            var entry = pollfd(fd: over.readEnd, events: Int16(POLLIN), revents: 0)
            var seen = -1
            while poll(&entry, 1, 600_000) <= 0 {  // ends: when the cases are over, or when the process ends
                if seen == count.value { CaseWatchdog.endProcess(current.value) }
                seen = count.value
            }
        }
        thread.detach()
    }

    /// Records that the next case begins.
    public func begin(_ test: String) {
        current.value = test
        count.increment()
    }

    /// Records that all cases are over. Without this call, the process ends some time later.
    public func end() { over.write() }

    private static func endProcess(_ test: String) {
        let words = Array("no end within ten minutes: \(test)\n".utf8)
        _ = write(STDERR_FILENO, words, words.count)
        _exit(3)
    }
}
