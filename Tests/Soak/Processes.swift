// Signals, child processes, and message ports between processes. The server is a second process of this program, killed now and then.

import EventLoop
import EventLoopMessagePorts
import Glibc
import Synchronization

final class Signals: Part, @unchecked Sendable {
    override func start() throws {
        // Real-time signals are queued, so every signal that is sent arrives.
        let signal = __libc_current_sigrtmin() + 3
        let arrivals = book.account("signals")
        let loop = try thread("signals").runLoop
        loop.add(try RunLoop.SignalSource(signal: signal) { _, count in arrivals.finish(count) })
        drive(try thread("signal sender"), every: .milliseconds(10)) {
            for _ in 0..<3 {
                arrivals.ask()
                // The kernel's queue may be full.
                if kill(getpid(), signal) != 0 { arrivals.takeBack() }
            }
        }
    }
}

final class Children: Part, @unchecked Sendable {
    override func start() throws {
        let ends = book.account("children reaped")
        let thread = try thread("children")
        let loop = thread.runLoop
        let number = Number(0)
        drive(thread, every: .milliseconds(100)) { [book] in
            number.value += 1
            let isKilled = number.value % 4 == 0
            ends.ask()
            let child = isKilled ? spawn("/bin/sleep", ["3600"]) : spawn("/bin/sh", ["-c", "exit 3"])
            do {
                loop.add(
                    try RunLoop.ProcessSource(pid: child) { [book] _, status in
                        ends.finish()
                        let expected: RunLoop.ExitStatus = isKilled ? .signaled(signal: SIGKILL, coreDumped: false) : .exited(3)
                        if status != expected { book.fault("a child's status is \(status), not \(expected)") }
                    })
                if isKilled { kill(child, SIGKILL) }
            } catch {
                book.fault("child \(child) cannot be watched: \(error)")
            }
        }
    }
}

final class MessagePorts: Part, @unchecked Sendable {
    private let name = "soak.\(getpid())"
    private let requests: Account
    private let tasks: Account
    private let servers: Account
    private let state = Mutex((server: Int32(0), isOver: false))
    private let client = Mutex<RunLoop.RemoteMessagePort?>(nil)

    override init(_ book: Book) {
        requests = book.account("requests answered, or failed with their server")
        tasks = book.account("requests of tasks")
        servers = book.account("servers killed and reaped")
        super.init(book)
    }

    override func start() throws {
        let watcher = try thread("server watcher")
        startServer(watcher.runLoop)
        drive(watcher, every: .seconds(3)) { [self] in state.withLock { if $0.server != 0 { kill($0.server, SIGKILL) } } }
        let connect: @Sendable () -> RunLoop.RemoteMessagePort? = { [self] in
            if let port = client.withLock({ $0 }), port.isValid { return port }
            do throws(RunLoop.PortError) {
                let port = try RunLoop.RemoteMessagePort(name: name, timeout: .seconds(60))
                client.withLock { $0 = port }
                return port
            } catch {
                // Between two servers no process has the name.
                if error != .notFound { book.fault("no connection to the server: \(error)") }
                return nil
            }
        }
        let number = Number(0)
        drive(try thread("requests"), every: .milliseconds(5)) { [self] in
            guard let port = connect() else { return }
            number.value += 1
            let data = [UInt8](repeating: UInt8(truncatingIfNeeded: number.value), count: number.value % 50 == 0 ? 1 << 20 : 100)
            requests.ask()
            let mode: RunLoop.Mode? = number.value % 3 == 0 ? "replies" : nil
            ended(requests) { () throws(RunLoop.PortError) in
                try port.request(id: 1, data: data, sendTimeout: .seconds(60), replyTimeout: .seconds(60), replyMode: mode) == data
            }
            guard number.value % 4 == 0 else { return }
            tasks.ask()
            Task { [self] in
                do throws(RunLoop.PortError) {
                    let reply = try await port.request(id: 1, data: data, timeout: .seconds(60))
                    ended(tasks) { () throws(RunLoop.PortError) in reply == data }
                } catch {
                    ended(tasks) { () throws(RunLoop.PortError) in throw error }
                }
            }
        }
    }

    /// The reply equals the request. A request without a reply has lost its server; a request without an answer in a minute is lost.
    private func ended(_ account: Account, _ reply: () throws(RunLoop.PortError) -> Bool) {
        do throws(RunLoop.PortError) {
            if try !reply() { book.fault("a reply is not its request's") }
        } catch {
            switch error {
            case .becameInvalid, .invalidPort: break
            default: book.fault("a request ended with \(error)")
            }
        }
        account.finish()
    }

    private func startServer(_ loop: RunLoop) {
        let isOver = state.withLock { state in
            state.server = 0
            return state.isOver
        }
        if isOver { return }
        servers.ask()
        let child = spawn("/proc/self/exe", ["--serve", name])
        state.withLock { $0.server = child }
        do {
            loop.add(
                try RunLoop.ProcessSource(pid: child) { [self] _, status in
                    servers.finish()
                    if status != .signaled(signal: SIGKILL, coreDumped: false) { book.fault("the server has \(status)") }
                    startServer(loop)
                })
        } catch {
            book.fault("the server cannot be watched: \(error)")
        }
    }

    override func finish() {
        let server = state.withLock { state in
            state.isOver = true
            return state.server
        }
        if server != 0 { kill(server, SIGKILL) }
    }

    /// The server's process.
    static func serve(_ name: String) -> Never {
        let loop = RunLoop.current
        // The process must not outlive the program that started it.
        let parent = getppid()
        loop.add(RunLoop.Timer(every: .seconds(1)) { _ in if getppid() != parent { exit(0) } })
        do {
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in data }
            loop.add(port)
            loop.run()
        } catch {
            complain("soak: the server's name: \(error)")
        }
        exit(1)
    }
}

/// A named port of this process, which one handler serves from the beginning to the end. The servers above live for seconds, and nobody
/// measures their memory.
final class LastingPort: Part, @unchecked Sendable {
    override func start() throws {
        let messages = book.account("messages to a port of this process")
        let name = "soak.lasting.\(getpid())"
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
            messages.finish()
            return nil
        }
        try thread("lasting port").runLoop.add(port)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        drive(try thread("message sender"), every: .milliseconds(4)) { [book] in
            for _ in 0..<8 {
                messages.ask()
                do throws(RunLoop.PortError) { try remote.send(id: 1, data: [1, 2, 3], timeout: .seconds(60)) } catch {
                    messages.takeBack()
                    book.fault("a message to a named port was not sent: \(error)")
                }
            }
        }
    }
}
