// An echo server as a service: of swift-service-lifecycle in the process, and of systemd around it.
//
//   echo-service [PORT]    on 127.0.0.1, or on the sockets that systemd passes; ends with SIGTERM, when its clients have gone
//
// Try socket activation without a unit:   systemd-socket-activate --listen 8080 .build/debug/echo-service

import EventLoop
import EventLoopLogging
import EventLoopMetrics
import EventLoopServiceLifecycle
import EventLoopSupervisor
import Logging
import ServiceLifecycle
import UnixSignals

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
enum Program {
    static func main() async throws {
        // A write to a client that has closed its end fails, and does not end the service.
        signal(SIGPIPE, SIG_IGN)
        LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
        let logger = Logger(label: "echo-service")
        RunLoop.logWarnings(to: logger)
        RunLoop.logLibeventMessages(to: logger)

        // Without systemd, every call of the supervisor does nothing.
        let supervisor = try RunLoop.Supervisor()
        let server = try EchoServer(supervisor.sockets, port: CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7777)
        let service = RunLoopService(
            count: 2, name: "echo", drainLimit: .seconds(10), supervisor: supervisor,
            setup: { loop in
                server.serve(on: loop)
                let metrics = RunLoopMetrics(loop, name: "echo")
                metrics.reportWhileWorking(every: .seconds(10))
                return metrics
            },
            drain: { _, _ in server.stopListening() },
            teardown: { _, metrics in metrics.invalidate() })
        let services = ServiceGroup(
            services: [service], gracefulShutdownSignals: [.sigterm], cancellationSignals: [.sigint], logger: logger)
        try await services.run()
    }
}
