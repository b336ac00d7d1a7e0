// Plays a small world on a stream, and remembers what a plain model of a stream has to know: what the program wrote and was told that it
// is accepted, what it read, what the peer sent and got, and what may have ended the stream. StreamStage+Judge.swift compares.

import EventLoop
import Testing

@testable import EventLoopStreams

#if canImport(EventLoopTestSupport)
import EventLoopTestSupport
#else
import TestSupport
#endif

final class StreamStage: @unchecked Sendable {
    // SAFETY: the world's thread uses it, and a thread that this one waits for. Tasks run on the world's thread, too.

    /// What one call wrote.
    struct Written {
        enum State { case pending, accepted, refused, unsure }
        let bytes: [UInt8]
        let isEncrypted: Bool
        var state: State
    }

    /// A call that awaits.
    final class Pending {
        let name: String
        var task: Task<Void, Never>?
        var isOver = false
        init(_ name: String) { self.name = name }
    }

    let world: StreamWorld
    let loop: RunLoop
    let clock: RunLoop.ManualClock
    let tls: WorldTLS
    let wire: any WorldWire
    var stream: ByteStream?
    weak var weakStream: ByteStream?
    /// What is left of a stream after its release.
    private let core: StreamCore?
    var complaints: [String] = []

    // The program.
    var written: [Written] = []
    /// What a call of `finishWriting` that succeeded had before it.
    var mustArrive: [UInt8] = []
    var received: [UInt8] = []
    /// What a handler has seen and left.
    var isLeft = 0
    var calls: [Pending] = []
    var reader: Pending?
    var hasReceiveHandler = false
    var handlerCameLate = false
    var isForTasks = false
    var setsEnd = false
    var endCalls = 0
    var lastCalls = 0
    var seenEnd: ByteStream.End?
    /// The program wants a layer; it has one; it did not get it.
    var layerIsWanted = false, layerIsThere = false, layerIsRefused = false
    private var depth = 0
    private var hasActed = false

    // The peer.
    var sent: [UInt8] = []
    var got: [UInt8] = []
    var gotInTheClear = 0
    var peerLayer: (any WorldPeerLayer)?
    var peerHasEnded = false
    private var isInTicket = false
    /// The peer has closed with bytes that it had not sent.
    var peerHasDropped = false
    var seesEnd = false
    var seesGoodbye = false
    private var letters = (ours: 0, peers: 0)

    /// What happened that ends a stream, or loses something that was promised to nobody.
    var happened: Set<WorldStep> = []
    var isBroken = false

    let few = 3
    var much: Int { wire.capacity * 3 }

    init(_ world: StreamWorld, on loop: RunLoop, _ clock: RunLoop.ManualClock, _ wire: any WorldWire, _ tls: WorldTLS) throws {
        (self.world, self.loop, self.clock, self.wire, self.tls) = (world, loop, clock, wire, tls)
        var options = ByteStream.Options()
        (options.receiveLimit, options.highWater, options.lowWater) = (wire.capacity / 2, wire.capacity / 2, wire.capacity / 8)
        (options.idleTimeout, options.writeTimeout, options.receiveTimeout) = (.seconds(70), .seconds(60), .seconds(80))
        stream = try wire.makeStream(on: loop, options)
        weakStream = stream
        core = stream?.core
    }

    // MARK: The course of a world

    func play() -> [String] {
        arrange()
        settle()
        end()
        judge()
        return complaints
    }

    private func arrange() {
        switch world.place {
        case .apart: performApart()
        case .together: performAll()
        case .besideReader:
            ensureReader()
            settle()
            performApart()
        case .inReceive, .inPartialReceive, .onThread:
            setReceiveHandler(takesOne: world.place == .inPartialReceive)
            setEndHandler()
            perform(.peerSends)
            settle()
        case .inRoom:
            setEndHandler()
            stream?.onRoom { [unowned self] _ in handle { actOnce() } }
            perform(.sendMuch)
            perform(.peerTakes)
            settle()
            perform(.peerTakes)
        case .inEnd:
            setEndHandler()
            perform(.close)
        case .inHandshake:
            perform(.startTLS)
            settle()
            performApart()
        case .afterHandshake:
            perform(.startTLS)
            for _ in 0..<4 {
                settle()
                perform(.peerAnswers)
            }
            settle()
            performApart()
        }
    }

    private func performApart() {
        for step in world.steps {
            perform(step)
            settle()
        }
    }

    private func performAll() { for step in world.steps { perform(step) } }

    private func actOnce() {
        if hasActed { return }
        hasActed = true
        if world.place == .onThread { try! plainThread { self.performAll() }.join() } else { performAll() }
    }

    func settle() {
        for _ in 0..<8 { _ = loop.run(for: .zero) }
        checkEnd()
    }

    /// Brings every world to its end: the peer takes and sends what it has, the program reads, and then both end.
    private func end() {
        for _ in 0..<4 {
            perform(.peerAnswers)
            settle()
        }
        pump()
        // Whatever the layer waits for.
        if peerLayer?.isDone == true {
            perform(.peerEndsTicket)
            perform(.peerSends)
            pump()
        }
        if !peerHasEnded { perform(.peerEnds) }
        pump()
        (stream ?? weakStream)?.closeAfterWriting()
        pump()
        peerTakes()
        wire.close()
        settle()
        // Lingering is over.
        clock.advance(by: .seconds(10))
        settle()
        stream = nil
        settle()
    }

    private func pump() {
        var quiet = 0
        while quiet < 3 {  // ends: the bytes are finite
            let before = (received.count, got.count)
            ensureReader()
            peerTakes()
            if let peerLayer { wire.send(peerLayer.takeOutput()) }
            settle()
            quiet = before == (received.count, got.count) ? quiet + 1 : 0
        }
    }

    /// Somebody takes everything.
    private func ensureReader() {
        guard let stream = stream ?? weakStream else { return }
        stream.isReading = true
        if hasReceiveHandler && !isForTasks { return setReceiveHandler(takesOne: false, stream) }
        if reader?.isOver == false || hasReceiveHandler { return }
        isForTasks = true
        reader = begin("a reader") { [self, stream] in
            while let bytes = try await stream.read(upTo: 5) { received += bytes }
        }
    }

    // MARK: Steps

    func perform(_ step: WorldStep) {
        // In a handler, the stream is there after its release.
        let stream = stream ?? (depth > 0 ? weakStream : nil)
        if step.isOfPeer { return performOfPeer(step) }
        guard let stream else { return }
        switch step {
        case .send: send(few, stream)
        case .sendMuch: send(much, stream)
        case .write: write(few, stream)
        case .writeMuch: write(much, stream)
        case .read: read(step, stream) { try await $0.read(upTo: 2) ?? [] }
        case .readExactly: read(step, stream) { try await $0.read(exactly: 6) }
        case .readLine: read(step, stream) { Array((try await $0.readLine() ?? "").utf8) }
        case .finishSending:
            happened.insert(.finishSending)
            stream.finishSending()
        case .finishWriting:
            happened.insert(.finishSending)
            begin(step.rawValue) { [self] in
                try await stream.finishWriting()
                mustArrive = written.filter { $0.state == .accepted }.flatMap(\.bytes)
            }
        case .close:
            let before = stream.end
            happened.insert(.close)
            stream.close()
            if before == nil && stream.end != .closed { complaints.append("close left the end \(stream.end as Any)") }
        case .closeAfterWriting:
            happened.insert(.closeAfterWriting)
            stream.closeAfterWriting()
        case .startTLS: startTLS(stream)
        case .onReceive: setReceiveHandler(takesOne: false, stream)
        case .onReceiveOne: setReceiveHandler(takesOne: true, stream)
        case .onRoom: stream.onRoom { [unowned self] _ in handle {} }
        case .onEnd: setEndHandler(stream)
        case .onPeerFinish: stream.onPeerFinish { [unowned self] stream in complainUnlessOnLoop(stream) }
        case .pause: stream.isReading = false
        case .resume: stream.isReading = true
        case .cancel:
            guard let call = calls.last(where: { !$0.isOver }) else { return }
            happened.insert(.cancel)
            call.task?.cancel()
        case .release:
            happened.insert(.release)
            self.stream = nil
        case .nestedRun: if loop.isCurrent { for _ in 0..<3 { _ = loop.run(for: .zero) } }
        default: preconditionFailure("an act of the peer")
        }
        checkEnd()
    }

    private func performOfPeer(_ step: WorldStep) {
        switch step {
        case .peerSends: peerSends(few)
        case .peerSendsMuch: peerSends(much)
        case .peerEnds, .peerTruncates:
            if peerHasEnded { return }
            happened.insert(step)
            peerHasEnded = true
            if isInTicket { isBroken = true }
            // Before the end of its handshake it has no proper end.
            if layerIsWanted, peerLayer?.isDone != true { happened.insert(.peerTruncates) }
            if step == .peerEnds, let peerLayer, peerLayer.isDone { wire.send(peerLayer.goodbye()) }
            wire.finish()
        case .peerCloses, .peerResets:
            happened.insert(step)
            peerHasEnded = true
            if !wire.waiting.isEmpty { peerHasDropped = true }
            if step == .peerCloses { wire.close() } else { wire.reset() }
        case .peerTakes: peerTakes()
        case .peerAnswers:
            peerTakes()
            if let peerLayer { wire.send(peerLayer.takeOutput()) }
        case .peerBeginsTicket, .peerEndsTicket, .peerUpdatesKeys:
            guard !peerHasEnded, let peerLayer, peerLayer.isDone else { return }
            // A message of the handshake protocol in another one breaks the protocol, and so does half of one.
            if isInTicket != (step == .peerEndsTicket) { return }
            switch step {
            case .peerUpdatesKeys: wire.send(peerLayer.keyUpdate())
            case .peerBeginsTicket:
                isInTicket = true
                wire.send(peerLayer.ticket().first)
            default:
                isInTicket = false
                wire.send(peerLayer.ticket().second)
            }
        case .bytesAreInjected:
            if peerHasEnded { return }
            if layerIsWanted { isBroken = true } else { sent.append(UInt8(ascii: "z")) }
            wire.send([UInt8(ascii: "z")])
        case .timePasses:
            happened.insert(.timePasses)
            clock.advance(by: .seconds(100))
        default: preconditionFailure("a call of the program")
        }
    }

    // MARK: The program

    private func nextBytes(_ count: Int) -> [UInt8] {
        defer { letters.ours += count }
        return (letters.ours..<(letters.ours + count)).map { UInt8(ascii: "a") + UInt8($0 % 25) }
    }

    private func send(_ count: Int, _ stream: ByteStream) {
        let (bytes, takes) = (nextBytes(count), stream.core.withLock { stream.core.canWriteLocked })
        if !takes && isCertainlyOpen { complaints.append("nothing can be written any more") }
        let isEncrypted = layerIsWanted
        let hasRoom = stream.send(bytes)
        if hasRoom && !takes { complaints.append("send says true, and takes nothing") }
        written.append(Written(bytes: bytes, isEncrypted: isEncrypted, state: takes ? .accepted : .refused))
    }

    /// Nothing has happened that could end the writing side. A stream with a handler ends when that was called with the peer's end.
    private var isCertainlyOpen: Bool {
        happened.isSubset(of: hasReceiveHandler ? [.cancel] : [.peerEnds, .cancel]) && !isBroken && !layerIsWanted && world.place != .inEnd
    }

    private func write(_ count: Int, _ stream: ByteStream) {
        begin("write") { [self] in
            let index = written.count
            written.append(Written(bytes: nextBytes(count), isEncrypted: layerIsWanted, state: .pending))
            do {
                try await stream.write(written[index].bytes)
                written[index].state = .accepted
            } catch {
                written[index].state = error is CancellationError || error as? StreamError == .closed ? .refused : .unsure
            }
        }
    }

    private func read(_ step: WorldStep, _ stream: ByteStream, _ body: @escaping @Sendable (ByteStream) async throws -> [UInt8]) {
        // The others are precondition failures.
        if hasReceiveHandler || reader?.isOver == false { return }
        isForTasks = true
        reader = begin(step.rawValue) { [self] in received += try await body(stream) }
    }

    private func startTLS(_ stream: ByteStream) {
        begin("startTLS") { [self] in
            let isFirst = !layerIsWanted
            layerIsWanted = true
            do {
                try await stream.install(try tls.makeLayer(world.trouble), timeout: .seconds(30))
                layerIsThere = true
            } catch {
                if isFirst || !layerIsThere { layerIsRefused = true }
            }
        }
    }

    @discardableResult
    private func begin(_ name: String, _ body: @escaping @Sendable () async throws -> Void) -> Pending {
        let call = Pending(name)
        nonisolated(unsafe) let over = call  // SAFETY: the task runs on the world's thread.
        call.task = Task(executorPreference: loop) {
            try? await body()
            over.isOver = true
        }
        calls.append(call)
        return call
    }

    // MARK: Handlers

    private func setReceiveHandler(takesOne: Bool, _ ours: ByteStream? = nil) {
        guard let stream = ours ?? stream, !isForTasks else { return }
        // After the report of the end no handler is called; only a task reads what came before.
        if endCalls > 0 { handlerCameLate = true }
        hasReceiveHandler = true
        stream.onReceive { [unowned self] stream, bytes in
            complainUnlessOnLoop(stream)
            handle {
                received += bytes.take(takesOne ? min(1, bytes.count) : bytes.count)
                let isLast = bytes.isLast
                if isLast { lastCalls += 1 }
                if isPlace(.inReceive) || isPlace(.inPartialReceive) || isPlace(.onThread) { actOnce() }
                // What is left in the last call is lost, unless another handler was set.
                if isLast && takesOne { received += bytes.take(bytes.count) }
                isLeft = bytes.count
            }
        }
    }

    private func isPlace(_ place: WorldPlace) -> Bool { world.place == place }

    private func setEndHandler(_ ours: ByteStream? = nil) {
        guard let stream = ours ?? stream else { return }
        if endCalls == 0 { setsEnd = true }
        stream.onEnd { [unowned self] stream, end in
            complainUnlessOnLoop(stream)
            endCalls += 1
            if stream.end != end { complaints.append("onEnd says \(end), and the stream \(stream.end as Any)") }
            handle { if isPlace(.inEnd) { actOnce() } }
        }
    }

    private func handle(_ body: () -> Void) {
        if depth > 0 { complaints.append("a handler is called while another one is") }
        depth += 1
        body()
        depth -= 1
    }

    private func complainUnlessOnLoop(_ stream: ByteStream) {
        if !stream.loop.isCurrent { complaints.append("a handler is called on another thread") }
    }

    private func checkEnd() {
        guard let end = core?.withLock({ core?.locked.end }) else { return }
        if let seenEnd, seenEnd != end { complaints.append("the end was \(seenEnd), and is \(end)") }
        seenEnd = end
    }

    // MARK: The peer

    private func peerSends(_ count: Int) {
        if peerHasEnded { return }
        let bytes = (letters.peers..<(letters.peers + count)).map { UInt8(ascii: "a") + UInt8($0 % 25) }
        letters.peers += count
        if let peerLayer, peerLayer.isDone {
            // Data in a message of the handshake protocol breaks the protocol.
            if isInTicket { return }
            sent += bytes
            wire.send(peerLayer.encrypt(bytes))
        } else {
            if layerIsWanted { isBroken = true } else { sent += bytes }
            wire.send(bytes)
        }
    }

    func peerTakes() {
        var (bytes, hasEnded) = wire.receive()
        if hasEnded { seesEnd = true }
        if peerLayer == nil {
            let clear = bytes.firstIndex(of: tls.firstByte) ?? bytes.count
            got += bytes[..<clear]
            gotInTheClear += clear
            if clear == bytes.count { return }
            if !layerIsWanted { complaints.append("the peer got \(bytes[clear])") }
            peerLayer = try! tls.makePeer()
            bytes.removeFirst(clear)
        }
        guard let peerLayer else { return }
        let (plain, hasLayerEnded, complaint) = peerLayer.receive(bytes)
        got += plain
        if hasLayerEnded { seesGoodbye = true }
        if let complaint { complaints.append(complaint) }
    }
}
