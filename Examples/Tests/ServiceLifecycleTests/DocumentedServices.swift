// The code of docs/services.md, compiled. RunLoopServiceTests run services.

import EventLoop
import EventLoopServiceLifecycle
import EventLoopSupervisor
import Logging
import ServiceLifecycle
import UnixSignals

private final class Server {
    init(on loop: RunLoop) throws {}
    func stopListening() {}
    func free() {}
}

/// Compiled, and never called: it would take the signals of the tests.
private func serve(_ supervisor: RunLoop.Supervisor, _ logger: Logger) async throws {
    let service = RunLoopService(
        count: 4, name: "server", drainLimit: .seconds(10), supervisor: supervisor,
        setup: { loop in try Server(on: loop) },
        drain: { _, server in server.stopListening() },
        teardown: { _, server in server.free() })
    let services = ServiceGroup(services: [service], gracefulShutdownSignals: [.sigterm], cancellationSignals: [.sigint], logger: logger)
    try await services.run()
}
