// A running program of the pages, and what it prints.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

// Glibc's overlay does not declare these.
@_silgen_name("posix_openpt") private func openTerminal(_ flags: Int32) -> Int32
@_silgen_name("grantpt") private func grantTerminal(_ descriptor: Int32) -> Int32
@_silgen_name("unlockpt") private func unlockTerminal(_ descriptor: Int32) -> Int32
@_silgen_name("ptsname_r") private func nameTerminal(_ descriptor: Int32, _ name: UnsafeMutablePointer<CChar>, _ count: Int) -> Int32

/// A running program, whose output is a terminal: each line arrives when it is printed. `deinit` kills and reaps it.
final class DocumentedProgram {
    private var pid: pid_t = 0
    private let terminal: Int32
    private var reader: LineReader

    init(_ name: String, _ arguments: String...) {
        terminal = openTerminal(O_RDWR | O_NOCTTY | O_CLOEXEC)
        reader = LineReader(terminal)
        var path = [CChar](repeating: 0, count: 64)
        precondition(
            terminal >= 0 && grantTerminal(terminal) == 0 && unlockTerminal(terminal) == 0
                && nameTerminal(terminal, &path, path.count) == 0,
            "posix_openpt: errno \(errno)")
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path, O_WRONLY | O_NOCTTY, 0)
        pid = spawn(builtProgram(name), arguments, &actions)
    }

    deinit {
        if pid != 0 {
            kill(pid, SIGKILL)
            _ = waitForEnd(of: pid)
        }
        close(terminal)
    }

    func send(_ signal: Int32) { kill(pid, signal) }

    /// The next line of its output; nil if it has ended.
    func line() throws -> String? {
        // A terminal ends lines with CR LF.
        try reader.line("a line of the program").map { line in String(line.unicodeScalars.filter { $0 != "\r" }) }
    }

    /// Waits for its end. Returns the exit code, or 128 plus the signal, and the rest of its output.
    func end() throws -> (code: Int32, lines: [String]) {
        var lines: [String] = []
        while let line = try line() { lines.append(line) }  // ends: with the process
        let status = waitForEnd(of: pid) ?? 0
        pid = 0
        return (exitCode(ofStatus: status), lines)
    }
}

#endif
