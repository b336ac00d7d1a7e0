// Child processes for tests.

import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Starts a shell with no signal blocked. The caller must wait for it.
func spawn(_ script: String) -> Int32 { spawnChild("/bin/sh", ["-c", script]) }

/// Whether the process is in the process table, alive or ended.
func exists(_ process: Int32) -> Bool { kill(process, 0) == 0 }

func lowestFreeDescriptor() -> Int32 {
    let descriptor = dup(0)
    close(descriptor)
    return descriptor
}

/// Waits for a child and returns its status, or nil if it has been reaped already.
@discardableResult
func wait(for child: Int32) -> Int32? { waitForEnd(of: child) }
