// Rules proved here, with systemd's own program for trying socket activation, and the example echo-service:
// - A service serves the sockets that systemd passes, and their clients wait for nothing but its start.
// - It says when it is up, sends signs of life, and says when it stops. SIGTERM ends it when its clients have gone.

#if os(Linux)

import Glibc
import TestSupport
import Testing

@Suite(.bounded) struct SocketActivationTests {
    @Test func `a service that systemd starts for a connection serves it, and reports its life`() async throws {
        ignoreBrokenPipes()
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let manager = try ServiceManager()
        let socket = folder + "/echo"
        // The tool waits for a connection. Then it becomes the service, with the same process number.
        let service = Child(
            try programPath("systemd-socket-activate"),
            [
                "--listen=\(socket)", "--fdname=echo", "--setenv=NOTIFY_SOCKET=\(manager.path)", "--setenv=WATCHDOG_USEC=1000000",
                try builtProgramPath("echo-service"),
            ])
        let client = try await connection(to: socket)
        defer { close(client) }
        try await expectEcho("hello", client)
        try await manager.hear("READY=1")
        try await manager.hear("WATCHDOG=1")
        try await expectEcho("again", client)

        service.kill(SIGTERM)
        try await manager.hear("STOPPING=1")
        // It drains: the client that it has is served, and nobody else.
        try await expectEcho("still there", client)
        try await manager.hear("WATCHDOG=1")
        shutdown(client, Int32(SHUT_WR))
        let pid = service.pid
        let status = try await status(of: pid)
        #expect(status == 0, "wait status \(status)")
    }

    private func connection(to path: String) async throws -> Int32 {
        let descriptor = socket(AF_UNIX, 1, 0)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        try await suspendUntil("the socket of the service is there") { withUnixAddress(path) { connect(descriptor, $0, $1) == 0 } }
        return descriptor
    }

    private func expectEcho(_ text: String, _ client: Int32, _ location: SourceLocation = #_sourceLocation) async throws {
        let bytes = Array(text.utf8)
        #expect(write(client, bytes, bytes.count) == bytes.count, sourceLocation: location)
        var answer: [UInt8] = []
        try await suspendUntil("the service answers", location) {
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = recv(client, &buffer, buffer.count, 0x40)  // MSG_DONTWAIT
            if count > 0 { answer += buffer[..<count] }
            return answer.count >= bytes.count || count == 0
        }
        #expect(answer == bytes, sourceLocation: location)
    }

    /// Reaps the child.
    private func status(of pid: Int32) async throws -> Int32 {
        var status: Int32 = 0
        try await suspendUntil("the service ends") { waitpid(pid, &status, WNOHANG) == pid }
        return status
    }
}

#endif
