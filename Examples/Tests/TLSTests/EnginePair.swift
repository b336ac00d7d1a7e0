// A client's and a server's engine, connected in memory.

@testable import EventLoopStreams
@testable import EventLoopTLS

struct EnginePair {
    let client: TLSEngine
    let server: TLSEngine
    /// Everything that was sent so far.
    private(set) var fromClient: [UInt8] = []
    private(set) var fromServer: [UInt8] = []

    init(_ client: TLSClient, _ server: TLSServer, address: String? = nil) throws {
        self.init(try client.makeEngine(host: address), try server.makeEngine())
    }

    init(_ client: TLSEngine, _ server: TLSEngine) { (self.client, self.server) = (client, server) }

    /// Carries bytes until both have nothing to send. `cut` cuts what one side sends into pieces.
    mutating func exchange(
        cutClient: (Int, [UInt8]) -> [ArraySlice<UInt8>] = whole, cutServer: (Int, [UInt8]) -> [ArraySlice<UInt8>] = whole
    ) {
        client.begin()
        server.begin()
        while true {  // ends: each side stops after the handshake
            let (toServer, toClient) = (client.takeOutput(), server.takeOutput())
            if toServer.isEmpty && toClient.isEmpty { return }
            for piece in cutClient(fromClient.count, toServer) { server.receive(piece) }
            for piece in cutServer(fromServer.count, toClient) { client.receive(piece) }
            fromClient += toServer
            fromServer += toClient
        }
    }

    var isDone: Bool { client.isDone && server.isDone }
}

func whole(_: Int, _ bytes: [UInt8]) -> [ArraySlice<UInt8>] { [bytes[...]] }

/// Cuts the bytes of one side at one position of everything that it sends.
func cut(at position: Int) -> (_ sent: Int, _ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
    { sent, bytes in
        let place = position - sent
        guard place > 0, place < bytes.count else { return [bytes[...]] }
        return [bytes[..<place], bytes[place...]]
    }
}

func inPieces(of size: Int) -> (_ sent: Int, _ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
    { _, bytes in stride(from: 0, to: bytes.count, by: size).map { bytes[$0..<min($0 + size, bytes.count)] } }
}

extension TLSEngine {
    var isDone: Bool {
        if case .done = handshake { return true }
        return false
    }

    var handshakeError: TLSError? {
        if case .failed(let error, _) = handshake { return error as? TLSError }
        return nil
    }

    func receive(_ bytes: some Collection<UInt8>) { Array(bytes).withUnsafeBytes { receive($0) } }

    func write(_ text: String) { Array(text.utf8).withUnsafeBytes { _ = write($0) } }
    func write(_ bytes: [UInt8]) { bytes.withUnsafeBytes { _ = write($0) } }

    /// Reads until there is nothing more, and returns what came and how it stopped.
    func readAll(_ size: Int = 4_096) -> (bytes: [UInt8], stop: LayerRead) {
        var bytes: [UInt8] = []
        var space = [UInt8](repeating: 0, count: size)
        while true {  // ends: the engine has finitely many bytes
            let result = space.withUnsafeMutableBytes { read(into: $0) }
            guard case .bytes(let count) = result else { return (bytes, result) }
            bytes += space[..<count]
        }
    }

    func readText() -> String { String(decoding: readAll().bytes, as: UTF8.self) }
}
