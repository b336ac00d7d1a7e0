// A server of lines that its new version replaces without losing a client (docs/handover.md).
//
//   handover-server NAME [PORT]     on 127.0.0.1; NAME is the name of the message port through which a successor asks for the listener
//
// It serves the listener that systemd passes, if there is one. Otherwise it asks the server that has the name for its listener, and that one
// ends. If nobody has the name, it opens a listener of its own. SIGTERM ends it when its clients have gone.

import EventLoop
import EventLoopMessagePorts
import EventLoopStreams
import EventLoopSupervisor

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
enum Program {
    static func main() async throws {
        guard CommandLine.arguments.count > 1 else { return print("usage: handover-server NAME [PORT]") }
        let name = CommandLine.arguments[1]
        let port = CommandLine.arguments.dropFirst(2).first.flatMap { UInt16($0) } ?? 0
        let thread = try RunLoopThread(name: "server")
        let loop = thread.runLoop
        // From now on a SIGTERM waits for the program to be ready.
        let (wishes, wish) = AsyncStream.makeStream(of: Wish.self)
        loop.add(try RunLoop.SignalSource(signal: SIGTERM) { _, _ in wish.yield(.end) })

        let server = Server(on: loop)
        if let socket = try RunLoop.Supervisor().sockets.first(where: { $0.kind == .listener }) {
            try server.serve(socket.descriptor)
        } else if try await server.succeed(name) == false {
            try server.serve(try openListener(port))
        }
        say("serving \(server.address)")
        // The predecessor gives the name up when it has the answer.
        let successors = try await takeName(name) { successor in wish.yield(.handOver(to: successor)) }
        loop.add(successors)
        say("ready")

        for await wish in wishes {
            do {
                if case .handOver(let successor) = wish { try await server.handOver(to: successor) }
                break
            } catch {
                say("the successor does not serve: \(error)")  // so this server goes on
            }
        }
        successors.invalidate()
        await server.shutdown()
        thread.stop()
    }
}

private enum Wish: Sendable { case end, handOver(to: String) }

/// A socket that listens, and that no loop serves.
private func openListener(_ port: UInt16) throws -> Int32 {
    let source = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: port), backlog: 1_024) { _, descriptor, _ in
        close(descriptor)
    }
    defer { source.invalidate() }
    return fcntl(source.descriptor, F_DUPFD_CLOEXEC, 0)
}

/// The message port of this name, as soon as nobody else has it.
private func takeName(_ name: String, asked: @escaping @Sendable (_ successor: String) -> Void) async throws -> RunLoop.LocalMessagePort {
    while true {  // ends: the predecessor gives its port up
        if let port = try portIfNameIsFree(name, asked) { return port }
        try await Task.sleep(for: .milliseconds(10))
    }
}

private func portIfNameIsFree(_ name: String, _ asked: @escaping @Sendable (String) -> Void) throws -> RunLoop.LocalMessagePort? {
    do {
        return try RunLoop.LocalMessagePort(name: name) { _, _, data in
            asked(String(decoding: data, as: UTF8.self))
            return nil
        }
    } catch RunLoop.PortError.nameInUse {
        return nil
    }
}

/// `print` alone would keep lines back that go into a file.
private func say(_ text: String) {
    print(text)
    fflush(nil)
}
