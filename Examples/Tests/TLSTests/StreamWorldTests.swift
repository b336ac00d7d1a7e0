// Streams over TLS as small worlds: the machine of the main package (Tests/EventLoopStreamsTests/Worlds), with OpenSSL as the layer and as the
// peer. SMALL_WORLDS=long plays all worlds of two steps.

import COpenSSL
import EventLoop
import TestSupport
import Testing

@testable import EventLoopStreams
@testable import EventLoopTLS

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The peer of a world, a server.
private final class WorldOpenSSLPeer: WorldPeerLayer {
    private let engine: TLSEngine
    init(_ server: TLSServer) throws {
        engine = try server.makeEngine()
        engine.begin()
    }

    var isDone: Bool { engine.isDone }
    func takeOutput() -> [UInt8] { engine.takeOutput() }

    func receive(_ bytes: [UInt8]) -> (plain: [UInt8], hasEnded: Bool, complaint: String?) {
        engine.receive(bytes)
        let (plain, stop) = engine.readAll()
        return (plain, stop == .end, nil)
    }

    func encrypt(_ plain: [UInt8]) -> [UInt8] {
        let before = engine.takeOutput()
        engine.write(plain)
        return before + engine.takeOutput()
    }

    func goodbye() -> [UInt8] {
        engine.finishWriting()
        return engine.takeOutput()
    }

    /// The second half, when the first one is on its way.
    private var rest: [UInt8] = []

    func ticket() -> (first: [UInt8], second: [UInt8]) {
        if rest.isEmpty {
            let ticket = engine.ticketInTwoRecords()
            rest = ticket.second
            return ticket
        }
        defer { rest = [] }
        return ([], rest)
    }

    func keyUpdate() -> [UInt8] {
        engine.updateKeys(requestsPeer: true)
        return engine.takeOutput()
    }
}

extension TLSEngine {
    /// A server's: a session ticket of TLS 1.3 that is longer than a record.
    func ticketInTwoRecords() -> (first: [UInt8], second: [UInt8]) {
        let fill = [UInt8](repeating: 7, count: 600)
        // SSL_CTRL_SET_MAX_SEND_FRAGMENT
        precondition(SSL_ctrl(connection, 52, 512, nil) == 1)
        precondition(SSL_SESSION_set1_ticket_appdata(SSL_get_session(connection), fill, fill.count) == 1)
        precondition(SSL_new_session_ticket(connection) == 1)
        SSL_do_handshake(connection)
        precondition(SSL_ctrl(connection, 52, 16_384, nil) == 1)
        let records = takeOutput()
        // A record's length is in its fourth and fifth byte.
        let first = 5 + Int(records[3]) << 8 + Int(records[4])
        precondition(first < records.count, "the ticket has one record only")
        return (Array(records[..<first]), Array(records[first...]))
    }
}

@Suite(.tags(.memory)) struct StreamWorldTests {
    private let setup = Setup()
    private static let playsAll = getenv("SMALL_WORLDS").map { String(cString: $0) } == "long"

    @Test func `sequences of calls and acts over TLS keep what a stream promises`() throws {
        let (client, server) = (setup.client(), try setup.server())
        let tls = WorldTLS(
            makeLayer: { _ in try client.makeEngine(host: nil) }, makePeer: { try WorldOpenSSLPeer(server) }, firstByte: 22)
        let worlds = StreamWorlds.All(length: 2, connections: [.memory])
        let (stride, failures) = (Self.playsAll ? 1 : 97, Box<[String]>([]))
        for start in Swift.stride(from: 0, to: worlds.count, by: 500 * stride) {
            try onFreshThread { loop in
                let clock = RunLoop.ManualClock(autoAdvance: true)
                loop.use(clock)
                for number in Swift.stride(from: start, to: min(worlds.count, start + 500 * stride), by: stride) {
                    let world = worlds[number]
                    let stage = try StreamStage(world, on: loop, clock, MemoryWire(seed: nil, capacity: 4_096), tls)
                    let found = stage.play()
                    if found.isEmpty { continue }
                    if stage.weakStream != nil { _ = Unmanaged.passRetained(stage) }
                    failures.change { $0.append("\(world.source)\n    \(found.joined(separator: "\n    "))") }
                    return
                }
            }
        }
        for failure in failures.value.prefix(20) { Issue.record(Comment(rawValue: failure)) }
    }
}
