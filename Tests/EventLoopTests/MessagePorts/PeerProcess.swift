// The second process of the tests, which uses the tests' directory of ports.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

/// A running eventloop-port-peer. `deinit` kills and reaps it.
final class PeerProcess: @unchecked Sendable {
    // SAFETY: used by the one thread of a test.
    private var process: pid_t = 0
    private var input: Int32
    private let output: Int32
    private var reader: LineReader

    /// - Parameter environment: instead of the tests' own directory of ports.
    init(_ arguments: String..., environment: [String]? = nil) throws {
        var (ends, answers) = ([Int32](repeating: -1, count: 2), [Int32](repeating: -1, count: 2))
        precondition(closeOnExecPipe(&ends) && closeOnExecPipe(&answers), "pipe: errno \(errno)")
        (input, output, reader) = (ends[1], answers[0], LineReader(answers[0]))
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO)
        posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO)
        // It inherits no variables, so that only the test determines the directories.
        let settings = (environment ?? ["EVENTLOOP_PORT_DIRECTORY=\(portDirectory)"]) + ["SWIFT_BACKTRACE=enable=no"] + sanitizerSettings
        process = spawn(builtProgram("eventloop-port-peer"), arguments, &actions, variables: settings)
        close(ends[0])
        close(answers[1])
    }

    deinit {
        if process != 0 {
            kill(process, SIGKILL)
            _ = wait()
        }
        if input >= 0 { close(input) }
        close(output)
    }

    /// Starts a process that serves a port, and waits until it is ready.
    static func serving(_ name: String) throws -> PeerProcess {
        let peer = try PeerProcess("serve", name)
        try #require(peer.line() == "ready")
        return peer
    }

    /// Reads the next line of its output; nil if it has ended.
    func line() -> String? {
        do {
            return try reader.line("a line of the peer")
        } catch {
            Issue.record(error)
            return nil
        }
    }

    func tell(_ line: String = "") {
        let bytes = Array((line + "\n").utf8)
        _ = bytes.withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
    }

    /// Kills it and waits until it has ended.
    func killed() -> Int32 {
        kill(process, SIGKILL)
        return wait()
    }

    /// Closes its standard input, waits for its end, and returns the exit code, or 128 plus the signal.
    func ended() -> Int32 {
        close(input)
        input = -1
        return wait()
    }

    /// Waits for its end. Returns the exit code, or 128 plus the signal.
    func wait() -> Int32 {
        let status = waitForEnd(of: process) ?? 0
        process = 0
        return exitCode(ofStatus: status)
    }
}

#endif
