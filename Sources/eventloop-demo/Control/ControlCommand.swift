// `eventloop-demo ctl`: asks a server through its message port. Belongs to the main thread.

import EventLoop

final class ControlCommand {
    private let options: ControlOptions
    private let terminal: Terminal
    private let main = RunLoop.main
    private let deadline: RunLoop.Instant

    init(options: ControlOptions, terminal: Terminal) {
        (self.options, self.terminal) = (options, terminal)
        deadline = .now + options.timeout
    }

    func perform() throws(DemoError) {
        Process.ignoreBrokenPipes()
        let (name, server) = try findServer()
        switch options.action {
        case .status: say(try ask(server, name, ControlMessage.status))
        case .stop: try stop(server, name)
        }
    }

    // MARK: Finding

    private func findServer() throws(DemoError) -> (String, RunLoop.RemoteMessagePort) {
        if let name = options.name { return (name, try connect(name)) }
        let servers = ServerDirectory.running()
        guard let first = servers.first else {
            throw DemoError(sentence: "no server is running; start one with: eventloop-demo serve (or name one with --name)")
        }
        guard servers.count == 1 else {
            let list = servers.map { "\n  --name \($0.name)" }.joined()
            throw DemoError(sentence: "\(servers.count) servers are running; pick one:\(list)")
        }
        return first
    }

    private func connect(_ name: String) throws(DemoError) -> RunLoop.RemoteMessagePort {
        do throws(RunLoop.PortError) {
            return try RunLoop.RemoteMessagePort(name: name, timeout: options.timeout)
        } catch .notFound {
            let others = ServerDirectory.running().map(\.name)
            let hint = others.isEmpty ? "and no other server is running" : "but \(others.joined(separator: ", "))"
            throw DemoError(sentence: "no server is named '\(name)', \(hint)")
        } catch .badName {
            throw DemoError(sentence: "'\(name)' cannot be a name: a name has 1 to 128 bytes, and no NUL", code: 2)
        } catch .sendTimedOut {
            throw doesNotAnswer(name)
        } catch .notPermitted {
            throw DemoError(sentence: "the server '\(name)' belongs to another user")
        } catch {
            throw DemoError(sentence: "cannot connect to '\(name)': \(error)")
        }
    }

    // MARK: Asking

    private var timeLeft: Duration { max(.zero, RunLoop.Instant.now.duration(to: deadline)) }

    private func ask(_ server: RunLoop.RemoteMessagePort, _ name: String, _ id: Int32, _ data: [UInt8] = []) throws(DemoError) -> String {
        let reply: [UInt8]?
        do throws(RunLoop.PortError) {
            reply = try server.request(id: id, data: data, sendTimeout: timeLeft, replyTimeout: timeLeft)
        } catch .sendTimedOut {
            throw doesNotAnswer(name)
        } catch .replyTimedOut {
            throw doesNotAnswer(name, hasRequest: true)
        } catch .becameInvalid, .invalidPort {
            throw DemoError(sentence: "\(name) ended before it answered")
        } catch {
            throw DemoError(sentence: "cannot ask \(name): \(error)")
        }
        guard let reply else { throw DemoError(sentence: "\(name) does not understand this; is it a server of this program?") }
        return String(decoding: reply, as: UTF8.self)
    }

    /// - Parameter hasRequest: the request was sent, so a server that goes on later still acts on it.
    private func doesNotAnswer(_ name: String, hasRequest: Bool = false) -> DemoError {
        let limit = Format.count(Int(options.timeout / .seconds(1)), "second")
        let reason = "it may be suspended, or have no descriptors left"
        let later = hasRequest && options.action == .stop ? ". It has the request, and ends when it goes on" : ""
        return DemoError(sentence: "\(name) does not answer within \(limit); \(reason)\(later)")
    }

    private func say(_ text: String) {
        terminal.line(text)
        terminal.flush()
    }

    // MARK: Stopping

    /// The outcome of a stop, as the server reports it.
    private enum Outcome {
        case stopped(String)
        case stoppedUnanswered(String)
        case vanished
    }
    private var outcome: Outcome?
    private var progress: String?

    /// Asks the server to stop, and waits until it says that it has. Its messages come to a port of our own, whose name it gets with the
    /// request: the check-in of the Guide's Listings 3-17 to 3-19.
    private func stop(_ server: RunLoop.RemoteMessagePort, _ name: String) throws(DemoError) {
        let port = try openPort()
        defer { port.invalidate() }
        let here = LoopBound(self)
        server.onInvalidation { [main] in
            // Called on another thread. What the server said last is in our port's queue: it is served before this.
            main.perform(after: .milliseconds(200)) { here.value.end(.vanished) }
        }
        say("\(name) is stopping: \(try ask(server, name, ControlMessage.stop, Array(port.name.utf8)))")
        // Ends: with the outcome, or at the deadline.
        while outcome == nil, timeLeft > .zero { _ = main.run(until: deadline) }
        switch outcome {
        case .stopped(let sentence): say(sentence)
        case .stoppedUnanswered(let sentence): throw DemoError(sentence: "\(name) \(sentence)")
        case .vanished: throw DemoError(sentence: "\(name) ended without saying that it was done")
        case nil:
            let limit = Format.count(Int(options.timeout / .seconds(1)), "second")
            throw DemoError(sentence: "\(name) is still stopping after \(limit)" + (progress.map { ": \($0)" } ?? ""))
        }
    }

    private func openPort() throws(DemoError) -> RunLoop.LocalMessagePort {
        let here = LoopBound(self)
        do throws(RunLoop.PortError) {
            let port = try RunLoop.LocalMessagePort(name: "eventloop-demo-ctl-\(Process.id)") { _, id, data in
                here.value.heard(id, String(decoding: data, as: UTF8.self))
                return nil
            }
            main.add(port)
            return port
        } catch {
            throw DemoError(sentence: "cannot open a port for the server's messages: \(error)")
        }
    }

    private func heard(_ id: Int32, _ sentence: String) {
        switch id {
        case ControlMessage.progress: progress = sentence
        case ControlMessage.stopped: end(.stopped(sentence))
        case ControlMessage.stoppedUnanswered: end(.stoppedUnanswered(sentence))
        default: break
        }
    }

    private func end(_ outcome: Outcome) {
        if self.outcome == nil { self.outcome = outcome }
        main.stop()
    }
}
