// Child processes of tests, which live until the test ends them and never longer.
//
// Without Foundation's Process: it waits for children of its own, and whichever module of C brings `sys/socket.h` first owns its names.

public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A child process with nothing blocked. Killed, if it still lives, and reaped when it is released.
public final class Child: Sendable {
    public let pid: Int32
    /// The write end of its standard input; -1 when it has none of its own, or when it is closed.
    private let input: Locked<Int32>

    /// A child that lives until it is killed, or until this process ends: it reads a pipe that nobody writes to.
    ///
    /// It does not end by time. A test on a busy machine may take longer than any sleep, and would then wait for something that cannot happen.
    public static func untilKilled() -> Child { Child("/bin/cat", [], ownsInput: true) }

    /// - Parameter ownsInput: its standard input is a pipe, whose other end this object holds.
    public init(_ program: String, _ arguments: [String], ownsInput: Bool = false) {
        var ends: [Int32] = [-1, -1]
        var actions = fileActions()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if ownsInput {
            precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
            posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO)
            // It would keep the tests' own output open, for whose end whoever started the tests waits.
            posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
            posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
        }
        pid = spawn(program, arguments, &actions)
        if ownsInput { close(ends[0]) }
        input = Locked(ends[1])
    }

    deinit {
        if isOurs(pid) {
            systemKill(pid, SIGKILL)
            _ = waitForEnd(of: pid)
        }
        let descriptor = input.withLock { $0 }
        if descriptor >= 0 { close(descriptor) }
    }

    public func kill() { systemKill(pid, SIGKILL) }
    public func kill(_ signal: Int32) { systemKill(pid, signal) }
}

private func systemKill(_ pid: Int32, _ signal: Int32) { _ = kill(pid, signal) }

/// Starts a process with nothing blocked. The caller reaps it.
public func spawnChild(_ program: String, _ arguments: [String]) -> Int32 {
    var actions = fileActions()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    return spawn(program, arguments, &actions)
}

/// Waits for a child's end and reaps it: its status; nil when it has been reaped before.
///
/// One that does not end in time is an issue; it is killed then.
@discardableResult
public func waitForEnd(of pid: Int32, _ location: SourceLocation = #_sourceLocation) -> Int32? {
    var status: Int32 = 0
    var result: Int32 = 0
    do {
        try waitUntil("child \(pid) ends", location) {
            result = waitpid(pid, &status, WNOHANG)
            return result == pid || result < 0 && errno != EINTR
        }
    } catch {
        Issue.record(error, sourceLocation: location)
        systemKill(pid, SIGKILL)
        result = waitpid(pid, &status, 0)
    }
    return result == pid ? status : nil
}

/// Waits until a child has ended, and leaves it to be reaped by somebody else.
public func waitUntilEnded(_ pid: Int32, _ location: SourceLocation = #_sourceLocation) throws {
    try waitUntil("child \(pid) ends", location) {
        var info = siginfo_t()
        // Zeros when it lives: POSIX has it so.
        guard waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 else {
            precondition(errno == EINTR, "waitid: errno \(errno)")
            return false
        }
        return info.si_signo == SIGCHLD
    }
}

/// Whether it is a child that nobody has reaped: no other process can have its number.
private func isOurs(_ pid: Int32) -> Bool {
    var info = siginfo_t()
    return waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0
}

private func spawn(_ program: String, _ arguments: [String], _ actions: UnsafePointer<FileActions>) -> Int32 {
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
    let code = posix_spawn(&child, program, actions, &attributes, &words, environ)
    precondition(code == 0, "\(program): errno \(code)")
    return child
}

#if canImport(Glibc)
private typealias FileActions = posix_spawn_file_actions_t
private func fileActions() -> FileActions { posix_spawn_file_actions_t() }

// Glibc's overlay does not show it. In two steps, a process that another test starts between them would keep the ends open.
@_silgen_name("pipe2") private func systemPipe2(_ ends: UnsafeMutablePointer<Int32>, _ flags: Int32) -> Int32

/// False with errno set.
public func closeOnExecPipe(_ ends: inout [Int32]) -> Bool { systemPipe2(&ends, O_CLOEXEC) == 0 }
#else
private typealias FileActions = posix_spawn_file_actions_t?
private func fileActions() -> FileActions { nil }

/// False with errno set.
public func closeOnExecPipe(_ ends: inout [Int32]) -> Bool {
    pipe(&ends) == 0 && ends.allSatisfy { fcntl($0, F_SETFD, FD_CLOEXEC) == 0 }
}
#endif
