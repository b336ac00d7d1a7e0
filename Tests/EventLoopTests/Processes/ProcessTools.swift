// Child processes for tests.
//
// Without Foundation's Process: it waits for children of its own, and whichever module of C brings `sys/socket.h` first owns its names.

import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Starts a shell with nothing blocked. The caller waits for it.
func spawn(_ script: String) -> Int32 { spawn("/bin/sh", ["-c", script]) }

/// Starts a process that does nothing until it is killed. Itself the program: a shell's child would outlive the shell, and keep its pipes open.
func spawnSleeper() -> Int32 { spawn("/bin/sleep", ["100"]) }

func spawn(_ program: String, _ arguments: [String]) -> Int32 {
    var words: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    #if canImport(Glibc)
    var attributes = posix_spawnattr_t()
    #else
    var attributes: posix_spawnattr_t?
    #endif
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var child = pid_t()
    let code = posix_spawn(&child, program, nil, &attributes, &words, environ)
    precondition(code == 0, "\(program): errno \(code)")
    return child
}

/// Waits for a child and takes its status; nil when it is gone already.
@discardableResult
func wait(for child: Int32) -> Int32? {
    var status: Int32 = 0
    while true {  // ends: with the child
        let result = waitpid(child, &status, 0)
        if result == child { return status }
        if errno != EINTR { return nil }
    }
}

/// Whether the process stands in the table, dead or alive.
func exists(_ process: Int32) -> Bool { kill(process, 0) == 0 }

func lowestFreeDescriptor() -> Int32 {
    let descriptor = dup(0)
    close(descriptor)
    return descriptor
}
