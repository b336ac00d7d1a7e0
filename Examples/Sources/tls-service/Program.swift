// An echo server over TLS as a service: logs, metrics, a watchdog, systemd, and a quiet end with Control-C.
//
//   tls-service CHAIN KEY [PORT]     two files in PEM, and a port of 127.0.0.1
//
// Control-C and SIGTERM let the clients end, for ten seconds at most. SIGHUP reads the two files again.

import EventLoop
import EventLoopLogging
import EventLoopMetrics
import EventLoopObserving
import EventLoopServiceLifecycle
import EventLoopStreams
import EventLoopSupervisor
import EventLoopTLS
import Logging
import ServiceLifecycle
import Synchronization
import UnixSignals

@main
enum Program {
    static func main() async throws {
        let words = CommandLine.arguments
        guard words.count > 2 else { return print("usage: tls-service CHAIN KEY [PORT]") }
        LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
        let logger = Logger(label: "tls-service")
        let port = words.count > 3 ? UInt16(words[3]) ?? 0 : 0
        try await serve(logger, certificates: try Certificates(chain: words[1], key: words[2]), port: port)
    }
}

func serve(_ logger: Logger, certificates: Certificates, port: UInt16) async throws {
    RunLoop.logWarnings(to: logger)
    RunLoop.logLibeventMessages(to: logger)
    let group = try RunLoopThreadGroup(count: 2, name: "tls")
    let watchdog = RunLoop.Watchdog(threshold: .milliseconds(250), logger: logger)
    for loop in group.runLoops { watchdog.watch(loop) }
    let metrics = RunLoopMetrics(group, name: "tls")
    metrics.reportWhileWorking(every: .seconds(10))

    var options = ByteStream.Options()
    options.idleTimeout = .seconds(60)
    let address = RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: port)
    let server = try StreamServer(listeningOn: address, on: group.runLoops, options: options) { stream in
        do {
            try await stream.startTLS(certificates.server)
            for try await line in stream.lines() { try await stream.write(line + "\n") }
        } catch {
            logger.debug("a connection ended", metadata: ["error": "\(error)"])
        }
    }
    logger.info("listening", metadata: ["address": "\(server.localAddress)"])
    let hangUp = try certificates.readAgain(on: group.next(), logger)

    // Services end in reverse order: first the server, with the threads of its loops still there.
    let services = ServiceGroup(
        services: [RunLoopService(group, supervisor: try RunLoop.Supervisor()), StreamService(server, grace: .seconds(10))],
        gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
    try await services.run()
    hangUp.invalidate()
    metrics.invalidate()
    watchdog.invalidate()
}

/// The certificate of new connections.
final class Certificates: Sendable {
    private let (chain, key): (String, String)
    private let current: Mutex<TLSServer>

    init(chain: String, key: String) throws {
        (self.chain, self.key) = (chain, key)
        current = Mutex(try TLSServer(certificateChain: chain, privateKey: key))
    }

    var server: TLSServer { current.withLock { $0 } }

    func readAgain(on loop: RunLoop, _ logger: Logger) throws -> RunLoop.SignalSource {
        let source = try RunLoop.SignalSource(signal: 1) { [self] _, _ in  // SIGHUP
            do {
                let new = try TLSServer(certificateChain: chain, privateKey: key)
                current.withLock { $0 = new }
                logger.info("the certificate was read again")
            } catch {
                logger.error("the old certificate stays", metadata: ["error": "\(error)"])
            }
        }
        loop.add(source)
        return source
    }
}
