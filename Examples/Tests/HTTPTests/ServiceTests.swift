// Rules proved here (HTTPService.swift):
// - A graceful shutdown and a cancellation answer what has been received, and `run()` returns.
// - It throws when the server's loops end under it.

import EventLoop
import EventLoopHTTP
import EventLoopServiceLifecycle
import ServiceLifecycleTestKit
import TestSupport
import Testing

@Suite(.bounded) struct HTTPServiceTests {
    @Test(arguments: [true, false])
    func `the end of the service answers what has been received`(isGraceful: Bool) async throws {
        let (begun, mayEnd) = (Box(false), Box(false))
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { _ in
            begun.value = true
            try await suspendUntil("the test goes on") { mayEnd.value }
            return .text("answered")
        }
        let service = HTTPService(server, grace: patience)
        let client = Task {
            try await elsewhere {
                let client = try Client(server)
                return try client.ask(get()).text
            }
        }
        try await suspendUntil("the handler runs") { begun.value }
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await service.run() }
                if isGraceful { trigger.triggerGracefulShutdown() } else { group.cancelAll() }
                try await suspendUntil("nobody listens") { (try? Client(server)) == nil }
                mayEnd.value = true
                try await group.waitForAll()
            }
        }
        #expect(try await client.value == "answered")
        #expect(server.connections == 0)
        try thread.end()
    }

    @Test func `run throws when the server's loops end under it`() async throws {
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { _ in .text("x") }
        let run = Task { try await HTTPService(server).run() }
        try await elsewhere { _ = try thread.end() }
        await #expect(throws: RunLoopEnded.self) { try await run.value }
    }
}
