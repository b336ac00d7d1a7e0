// A running eventloop-demo, and what it prints.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

/// A running eventloop-demo. `deinit` kills and reaps it. If the tests themselves are killed, a watchdog kills it.
final class DemoProcess: @unchecked Sendable {
    // SAFETY: used by the one thread of a test.
    private(set) var pid: pid_t = 0
    private let output: Int32
    private var reader: LineReader
    private var watchdog: Child?

    /// Removed after the process has ended: a server whose port has lost its file would make the directory again.
    private let ports: PortDirectoryOfTest

    init(_ arguments: [String], ports: PortDirectoryOfTest) {
        self.ports = ports
        var ends = [Int32](repeating: -1, count: 2)
        precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
        output = ends[0]
        reader = LineReader(output)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO)
        let settings = ["EVENTLOOP_PORT_DIRECTORY=\(ports.path)", "SWIFT_BACKTRACE=enable=no"] + sanitizerSettings
        pid = spawn(builtProgram("eventloop-demo"), arguments, &actions, variables: settings)
        close(ends[1])
        watchdog = Child("/bin/sh", ["-c", "read line; kill -9 \(pid)"], ownsInput: true)
    }

    deinit {
        // First, because the number may belong to another process once this one is reaped.
        watchdog = nil
        if pid != 0 {
            kill(pid, SIGKILL)
            _ = waitForEnd(of: pid)
        }
        close(output)
    }

    func send(_ signal: Int32) { kill(pid, signal) }

    /// Reads the next line of its output; nil if it has ended.
    func line() throws -> String? { try reader.line("a line of eventloop-demo") }

    /// Returns when it no longer runs. SIGCONT lets it go on.
    func suspend() throws {
        send(SIGSTOP)
        try waitUntil("eventloop-demo is suspended") {
            var info = siginfo_t()
            return waitid(P_PID, id_t(pid), &info, WSTOPPED | WNOWAIT | WNOHANG) == 0 && info.si_signo == SIGCHLD
        }
    }

    /// Waits for its end. Returns the exit code, or 128 plus the signal, and the rest of its output.
    func end() throws -> (code: Int32, output: String) {
        let rest = try reader.rest("the end of eventloop-demo's output")
        watchdog = nil
        let status = waitForEnd(of: pid) ?? 0
        pid = 0
        return (exitCode(ofStatus: status), rest)
    }
}

/// A directory of message ports in which only one test's servers are. Released, it removes what killed servers have left there.
final class PortDirectoryOfTest: Sendable {
    let path = makeTemporaryDirectory()

    deinit { removeFlatDirectory(path) }

    /// Starts a program and waits for its end.
    func run(_ arguments: String...) throws -> (code: Int32, output: String) { try DemoProcess(arguments, ports: self).end() }

    func start(_ arguments: String...) -> DemoProcess { DemoProcess(arguments, ports: self) }

    /// Starts a server on a free port, and waits until it serves.
    func serve(_ arguments: String...) throws -> RunningServer {
        let process = DemoProcess(["serve", "--port", "0"] + arguments, ports: self)
        let first = try #require(try process.line())
        let port = try #require(first.split(separator: ":").last.flatMap { UInt16($0.prefix { $0.isNumber }) }, "\(first)")
        _ = try process.line()
        return RunningServer(process: process, port: port)
    }
}

struct RunningServer {
    let process: DemoProcess
    let port: UInt16

    func connect() throws -> Client { try Client(port: port) }
}

#endif
