// Child processes of tests. A child lives until the test ends it, never longer.
//
// This file does not use Foundation's Process: that class waits for children of its own, and the first C module that imports `sys/socket.h`
// owns its names.

public import Testing

#if canImport(Glibc)
public import Glibc
#else
public import Darwin
#endif

/// A child process with no blocked signals. Releasing this object kills the child, if it still lives, and reaps it.
public final class Child: Sendable {
    public let pid: Int32
    /// The write end of the child's standard input; -1 if the child has no input of its own, or if the end is closed.
    private let input: Locked<Int32>

    /// A child that lives until it is killed, or until this process ends: the child reads from a pipe without data.
    ///
    /// The child does not end after a fixed time. On a busy machine, a test may take longer than any sleep of the child, and would then
    /// wait for an event that cannot happen.
    public static func untilKilled() -> Child { Child("/bin/cat", [], ownsInput: true) }

    /// - Parameter ownsInput: whether the child's standard input is a pipe whose other end this object holds.
    public init(_ program: String, _ arguments: [String], ownsInput: Bool = false) {
        var ends: [Int32] = [-1, -1]
        var actions = fileActions()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if ownsInput {
            precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
            posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO)
            // The child would keep the tests' own output open, and the program that started the tests waits for the end of that output.
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

/// Starts a process with no blocked signals. The caller reaps it.
public func spawnChild(_ program: String, _ arguments: [String]) -> Int32 {
    var actions = fileActions()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    return spawn(program, arguments, &actions)
}

/// Waits until a child ends, and reaps it. Returns its status, or nil if it has already been reaped.
///
/// If the child does not end in time, records an issue and kills the child.
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

/// Waits until a child has ended, and does not reap it.
public func waitUntilEnded(_ pid: Int32, _ location: SourceLocation = #_sourceLocation) throws {
    try waitUntil("child \(pid) ends", location) {
        var info = siginfo_t()
        // POSIX: the fields are zero while the child lives.
        guard waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 else {
            precondition(errno == EINTR, "waitid: errno \(errno)")
            return false
        }
        return info.si_signo == SIGCHLD
    }
}

/// Whether the process is a child that has not been reaped. Until it is reaped, no other process can have its number.
private func isOurs(_ pid: Int32) -> Bool {
    var info = siginfo_t()
    return waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0
}

/// Starts a program, with these variables instead of the tests' own if they are given. No signal is blocked in it: the threads that run tests
/// block signals, and a child inherits that.
public func spawn(_ program: String, _ arguments: [String], _ actions: UnsafePointer<FileActions>, variables: [String]? = nil) -> Int32 {
    var own: [UnsafeMutablePointer<CChar>?] = (variables ?? []).map { strdup($0) } + [nil]
    defer { for text in own { free(text) } }
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
    let code =
        variables == nil
        ? posix_spawn(&child, program, actions, &attributes, &words, environ)
        : posix_spawn(&child, program, actions, &attributes, &words, &own)
    precondition(code == 0, "\(program): errno \(code)")
    return child
}

#if canImport(Glibc)
public typealias FileActions = posix_spawn_file_actions_t
private func fileActions() -> FileActions { posix_spawn_file_actions_t() }

// Glibc's overlay does not declare pipe2. With two separate calls, a process that another test starts in between would keep the ends open.
@_silgen_name("pipe2") private func systemPipe2(_ ends: UnsafeMutablePointer<Int32>, _ flags: Int32) -> Int32

/// Returns false and sets errno on failure.
public func closeOnExecPipe(_ ends: inout [Int32]) -> Bool { systemPipe2(&ends, O_CLOEXEC) == 0 }
#else
public typealias FileActions = posix_spawn_file_actions_t?
private func fileActions() -> FileActions { nil }

/// Returns false and sets errno on failure.
public func closeOnExecPipe(_ ends: inout [Int32]) -> Bool {
    pipe(&ends) == 0 && ends.allSatisfy { fcntl($0, F_SETFD, FD_CLOEXEC) == 0 }
}
#endif
