// The entry point of the fuzzer for TLS. Scripts/fuzz compiles it with the engine, and makes the certificate.
//
// The first byte of an input says what the engine under test is, and who sends the rest:
//   bit 0: it is the server. bit 1: TLS 1.2 only. bit 2: a real peer does what the input says, behind the handshake; otherwise the input
//   is the peer, from the first byte. bit 3: without a real peer, each piece of the input gets a record's header.
//
// Whatever comes, the engine must not crash, hang, hold or send more than it got and a constant, give plain bytes that no peer has encrypted,
// or go on after a failure.

internal import EventLoop
internal import EventLoopStreams

/// What a handshake and the alerts after it need, in bytes. The answers to key updates are limited, too.
private let allowance = 16_384

private let folder = ".build/fuzz/tls"

private func makeServer(_ version: TLSVersion) -> TLSServer {
    // The script has made the files.
    try! TLSServer(
        certificateChain: "\(folder)/certificate.pem", privateKey: "\(folder)/key.pem", applicationProtocols: ["a", "bc"],
        maximumVersion: version)
}

private func makeClient(_ version: TLSVersion) -> TLSClient {
    TLSClient(
        serverName: "localhost", trustedCertificates: "\(folder)/certificate.pem", applicationProtocols: ["bc", "d"],
        maximumVersion: version)
}

private let servers = [makeServer(.tls13), makeServer(.tls12)]
private let clients = [makeClient(.tls13), makeClient(.tls12)]

/// An engine, and what it got and gave.
private struct Side {
    let engine: TLSEngine
    var received = 0
    var sent = 0
    var plainWritten = 0
    var plain: [UInt8] = []
    private(set) var hasEnded = false

    init(server: Bool, version: Int) {
        // The files are good.
        engine = server ? try! servers[version].makeEngine() : try! clients[version].makeEngine(host: nil)
        engine.begin()
    }

    mutating func receive(_ bytes: some Collection<UInt8>) {
        // In memory of exactly their size, so that AddressSanitizer notices a byte read beyond them.
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        memory.copyBytes(from: bytes)
        engine.receive(UnsafeRawBufferPointer(memory))
        memory.deallocate()
        received += bytes.count
        read()
    }

    mutating func receiveEnd() {
        hasEnded = true
        engine.receiveEnd()
        read()
        switch engine.handshake {
        case .inProgress: fatalError("the handshake goes on after the end")
        case .done: precondition(stop != .nothing, "an end is neither an end nor a failure")
        case .failed: break
        }
    }

    /// How reading stopped.
    private(set) var stop = LayerRead.nothing

    private mutating func read() {
        var space = [UInt8](repeating: 0, count: 1_000)
        while true {  // ends: plain bytes come from received ones
            let result = space.withUnsafeMutableBytes { engine.read(into: $0) }
            if case .failed = stop { precondition(result == stop, "something comes after a failure") }
            stop = result
            guard case .bytes(let count) = result else { break }
            precondition(count > 0 && count <= space.count)
            guard case .done = engine.handshake else { fatalError("plain bytes before the end of the handshake") }
            plain += space[..<count]
        }
        precondition(plain.count <= received)
    }

    /// Bytes that the engine refuses, because it has failed or needs input first, are not written.
    mutating func write(_ bytes: [UInt8]) {
        if bytes.withUnsafeBytes({ engine.write($0) }) == .wrote { plainWritten += bytes.count }
    }

    mutating func takeOutput() -> [UInt8] {
        let output = engine.takeOutput()
        sent += output.count
        // Each record adds at most 64 bytes to what the program writes, and there is at least one record for each write.
        precondition(sent <= allowance + received + plainWritten * 65, "the engine sends too much")
        precondition(engine.takeOutput().isEmpty)
        return output
    }
}

/// The input is the peer.
private func playPeer(_ side: inout Side, _ input: ArraySlice<UInt8>, withHeaders: Bool) {
    var rest = input
    while let size = rest.popFirst() {
        let piece = rest.prefix(Int(size))
        rest = rest.dropFirst(piece.count)
        // Types of records: change_cipher_spec, alert, handshake, application_data.
        let header = [20 + size % 4, 3, 3, 0, UInt8(piece.count)]
        side.receive(withHeaders ? header + piece : Array(piece))
        _ = side.takeOutput()
    }
    side.receiveEnd()
    _ = side.takeOutput()
    precondition(side.plain.isEmpty, "plain bytes of nobody")
}

/// A real peer does what the input says. Bytes may be changed, lost and repeated on their way to the side under test.
private func playPair(_ side: inout Side, _ peer: inout Side, _ input: ArraySlice<UInt8>) {
    func carry(_ side: inout Side, _ peer: inout Side) {
        while true {  // ends: the two have finitely many answers
            let (out, back) = (side.takeOutput(), peer.takeOutput())
            if out.isEmpty && back.isEmpty { return }
            peer.receive(out)
            side.receive(back)
        }
    }
    carry(&side, &peer)
    guard case .done = side.engine.handshake, case .done = peer.engine.handshake else { fatalError("the handshake failed") }
    var rest = input
    var isTampered = false
    while let operation = rest.popFirst() {
        let number = Int(rest.popFirst() ?? 0)
        switch operation % 10 {
        case 0, 1:
            peer.write([UInt8](repeating: 1, count: number * number))
        case 2:
            peer.engine.updateKeys(requestsPeer: number % 2 == 0)
        case 3:
            side.write([UInt8](repeating: 2, count: number))
        case 4:
            side.engine.updateKeys(requestsPeer: number % 2 == 0)
        case 5:
            var bytes = peer.takeOutput()
            guard !bytes.isEmpty else { continue }
            bytes[number % bytes.count] ^= rest.popFirst() ?? 1
            isTampered = true
            side.receive(bytes)
        case 6:
            let bytes = peer.takeOutput()
            isTampered = isTampered || number < bytes.count
            side.receive(bytes.prefix(number))
        case 7:
            let bytes = peer.takeOutput()
            for byte in bytes.prefix(300) { side.receive(CollectionOfOne(byte)) }
            side.receive(bytes.dropFirst(300))
            if number % 4 == 0 && !bytes.isEmpty {
                isTampered = true
                side.receive(bytes)
            }
        case 8:
            (number % 2 == 0 ? peer : side).engine.finishWriting()
        default:
            carry(&side, &peer)
        }
    }
    carry(&side, &peer)
    if !isTampered && side.stop == .nothing { precondition(side.plain.count == peer.plainWritten, "bytes are missing") }
    precondition(side.plain.allSatisfy { $0 == 1 } && peer.plain.allSatisfy { $0 == 2 }, "other bytes than were written")
    precondition(side.plain.count <= peer.plainWritten && peer.plain.count <= side.plainWritten)
    side.receiveEnd()
    peer.receiveEnd()
}

@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOne(_ start: UnsafeRawPointer?, _ count: Int) -> CInt {
    guard let start, count > 0 else { return 0 }
    let input = [UInt8](UnsafeRawBufferPointer(start: start, count: count))
    let (isServer, version) = (input[0] & 1 != 0, Int(input[0] >> 1 & 1))
    var side = Side(server: isServer, version: version)
    if input[0] & 4 == 0 {
        _ = side.takeOutput()
        playPeer(&side, input[1...], withHeaders: input[0] & 8 != 0)
    } else {
        var peer = Side(server: !isServer, version: version)
        playPair(&side, &peer, input[1...])
    }
    return 0
}
