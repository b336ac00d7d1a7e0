// Child processes for tests.

import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Starts a shell with nothing blocked. The caller waits for it.
func spawn(_ script: String) -> Int32 { spawnChild("/bin/sh", ["-c", script]) }

/// Whether the process stands in the table, dead or alive.
func exists(_ process: Int32) -> Bool { kill(process, 0) == 0 }

func lowestFreeDescriptor() -> Int32 {
    let descriptor = dup(0)
    close(descriptor)
    return descriptor
}

/// Waits for a child and takes its status; nil when it is gone already.
@discardableResult
func wait(for child: Int32) -> Int32? { waitForEnd(of: child) }
