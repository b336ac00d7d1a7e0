// `eventloop-demo ctl`: asks a server through its message port.

import EventLoop
import EventLoopMessagePorts

func control(_ arguments: inout Arguments) throws {
    guard let action = arguments.takeWord(), ["status", "stop"].contains(action) else {
        throw Misuse("ctl needs a command: ctl status, or ctl stop")
    }
    try arguments.readOptions("name", "timeout")
    let name = arguments.text("name") ?? Serve.usualName
    let seconds = try arguments.number("timeout", 0...3600, default: 30)
    let deadline = RunLoop.Instant.now + .seconds(seconds)
    do throws(RunLoop.PortError) {
        let server = try RunLoop.RemoteMessagePort(name: name, timeout: .seconds(seconds))
        let id = action == "stop" ? Serve.stopID : Serve.statusID
        let reply = try server.request(id: id, sendTimeout: .seconds(seconds), replyTimeout: RunLoop.Instant.now.duration(to: deadline))
        say(String(decoding: reply ?? [], as: UTF8.self))
        if action == "stop", !waitForEnd(of: server, until: deadline) {
            complain("\(name) is still stopping after \(counted(seconds, "second"))")
            leave(1)
        }
    } catch .notFound {
        throw Failure("no server is named '\(name)'; start one with: eventloop-demo serve --name '\(name)'")
    } catch {
        throw Failure("\(name): \(error)")
    }
}

/// A server invalidates its port when it has stopped. If its process ends in another way, the system does.
private func waitForEnd(of server: RunLoop.RemoteMessagePort, until deadline: RunLoop.Instant) -> Bool {
    // Called on another thread, and at once if it has happened already.
    server.onInvalidation { RunLoop.main.stop(sticky: true) }
    // A run without a timer or a source would return at once.
    RunLoop.Timer.scheduled(after: RunLoop.Instant.now.duration(to: deadline), label: "timeout") { _ in }
    return RunLoop.main.run(until: deadline) == .stopped
}
