// For tests that run many cases, of which any may hang in the library without calling anybody: then only the process can be ended.

import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Ends the process when one case takes longer than ten minutes, and says which one it was.
public final class CaseWatchdog: Sendable {
    private let current = Box("")
    private let count = Box(0)
    private let over = Pipe()

    public init() {
        let (current, count, over) = (current, count, over)
        let thread = plainThread {
            var entry = pollfd(fd: over.readEnd, events: Int16(POLLIN), revents: 0)
            var seen = -1
            while poll(&entry, 1, 600_000) <= 0 {  // ends: with the cases, or with the process
                if seen == count.value { CaseWatchdog.endProcess(current.value) }
                seen = count.value
            }
        }
        thread.detach()
    }

    /// The next case begins.
    public func begin(_ test: String) {
        current.value = test
        count.increment()
    }

    /// All cases are over. To be called, or the process ends some time later.
    public func end() { over.write() }

    private static func endProcess(_ test: String) {
        let words = Array("no end within ten minutes: \(test)\n".utf8)
        _ = write(STDERR_FILENO, words, words.count)
        _exit(3)
    }
}
