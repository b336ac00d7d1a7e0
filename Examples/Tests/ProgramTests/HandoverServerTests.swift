// Rules proved here, for the example handover-server (docs/handover.md), with processes:
// - (a) A server whose listener its parent keeps, as systemd does, is stopped and started under load, and no client is lost.
// - (b) A server that gets the listener from its predecessor through a message port replaces it under load, and no client is lost.
//
// EVENTLOOP_HANDOVER_CLIENTS=10000 is the long form: `make handover`.

#if os(Linux)

import EventLoop
import EventLoopStreams
import Glibc
import TestSupport
import Testing

/// Clients, one after the other in each of some tasks. Each connects, sends a line, and expects it back.
private final class Load: Sendable {
    private static let tasks = 16
    let clients: Int
    let served = Box(0)
    private let lost = Box<[String]>([])
    private let thread: RunLoopThread
    private let all: Task<Void, Never>

    init(_ clients: Int, to address: RunLoop.SocketAddress) throws {
        self.clients = clients / Self.tasks * Self.tasks
        thread = try RunLoopThread(name: "clients")
        let (served, lost, loop, count) = (served, lost, thread.runLoop, clients / Self.tasks)
        all = Task {
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<Self.tasks {
                    group.addTask(executorPreference: loop) {
                        for number in 0..<count {
                            do {
                                let stream = try await ByteStream.connect(to: address, timeout: patience, on: loop)
                                let line = "line \(number)\n"
                                try await stream.write(line)
                                let answer = try await stream.read(exactly: line.utf8.count)
                                stream.close()
                                if answer == Array(line.utf8) { served.increment() } else { lost.change { $0.append("another answer") } }
                            } catch {
                                lost.change { $0.append("\(error)") }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns when so many parts of ten have been served or lost.
    func reach(_ part: Int) async throws {
        try await suspendUntil("some more clients are served") { served.value + lost.value.count >= clients * part / 10 }
    }

    func end() async -> [String] {
        await all.value
        thread.stop()
        await thread.join()
        return lost.value
    }
}

@Suite(.bounded, .serialized) struct HandoverServerTests {
    private static let clients = getenv("EVENTLOOP_HANDOVER_CLIENTS").flatMap { Int(String(cString: $0)) } ?? 800

    private func report(_ way: String, _ load: Load, _ lost: [String], _ time: Duration) {
        #expect(lost.isEmpty && load.served.value == load.clients)
        if getenv("EVENTLOOP_HANDOVER_CLIENTS") != nil {
            print("\(way): \(load.clients) clients in \(time), 8 hand-overs, \(lost.count) lost")
        }
    }

    @Test func `no client is lost if a parent keeps the listener and starts the server again, as systemd does`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let source = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0), backlog: 1_024) { _, descriptor, _ in
            close(descriptor)
        }
        let address = source.localAddress!
        let listener = fcntl(source.descriptor, F_DUPFD_CLOEXEC, 10)
        source.invalidate()
        defer { close(listener) }
        let begin = ContinuousClock.now
        let load = try Load(Self.clients, to: address)
        for part in 1...8 {
            let server = try await startActivated("\(folder)/output\(part)", listener)
            try await load.reach(part)
            kill(server, SIGTERM)
            let code = waitForEnd(of: server)
            #expect(code == 0)
        }
        let last = try await startActivated("\(folder)/output", listener)
        let lost = await load.end()
        let time = ContinuousClock.now - begin
        kill(last, SIGTERM)
        let code = waitForEnd(of: last)
        #expect(code == 0)
        report("(a) a parent keeps the listener", load, lost, time)
    }

    @Test func `no client is lost if the server passes its listener on to its successor`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let name = "handover-\(getpid())"
        func start(_ number: Int) async throws -> ExampleProgram {
            let file = "\(folder)/output\(number)"
            let program = try ExampleProgram("handover-server", [name], output: file)
            try await waitUntilReady(file)
            return program
        }
        var server = try await start(0)
        let port = try #require(try text(of: "\(folder)/output0").split(separator: "127.0.0.1:").last?.prefix { $0.isNumber })
        let begin = ContinuousClock.now
        let load = try Load(Self.clients, to: .ipv4(host: "127.0.0.1", port: try #require(UInt16(port))))
        for part in 1...8 {
            try await load.reach(part)
            let successor = try await start(part)
            #expect(server.status() == 0)
            server = successor
        }
        let lost = await load.end()
        let time = ContinuousClock.now - begin
        server.end()
        #expect(server.status() == 0)
        report("(b) the predecessor passes it on", load, lost, time)
    }

    /// Before that, a signal may end the program at once.
    private func waitUntilReady(_ output: String) async throws {
        try await suspendUntil("the server is ready") {
            guard access(output, R_OK) == 0 else { return false }
            return try text(of: output).contains("ready")
        }
    }

    /// The program with the listener as its descriptor 3, and the variables of systemd (sd_listen_fds(3)).
    private func startActivated(_ output: String, _ listener: Int32) async throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, listener, 3)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
        let program = (try? builtProgramPath("handover-server")) ?? ""
        let child = spawn("/bin/sh", ["-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec '\(program)' 'activated-\(getpid())'"], &actions)
        try await waitUntilReady(output)
        return child
    }
}
#endif
