// Streams as small worlds: every call of a program and every act of its peer, in every order of up to three, from every place, over memory,
// sockets, pipes and a layer. A plain model of a stream says what must hold afterwards: nothing is lost and nothing comes twice, nothing is
// sent or read in the clear after startTLS, every call returns, nothing traps, and the stream ends once and rightly.
//
// The short form plays a sample; `make worlds` plays all worlds of three steps over memory, of two steps over descriptors, and many random
// longer ones whose layer fails.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let playsAll = getenv("SMALL_WORLDS").map { String(cString: $0) } == "long"

/// `SMALL_WORLDS_PART=3/20` plays the third twentieth.
private let part: (number: Int, of: Int) = {
    let words = getenv("SMALL_WORLDS_PART").map { String(cString: $0).split(separator: "/").compactMap { Int($0) } } ?? []
    return words.count == 2 ? (words[0], words[1]) : (1, 1)
}()

/// Plays worlds on one loop after another: a loop that a world has spoiled is not used again, and none plays more than some thousands.
private func play(_ count: Int, stride: Int = 1, _ world: @escaping @Sendable (Int) -> StreamWorld) throws {
    let watchdog = CaseWatchdog()
    let failures = Box<[String]>([])
    let step = stride * part.of
    var (next, played) = (stride * (part.number - 1), 0)
    while next < count {  // ends: the worlds are counted
        let end = min(count, next + 5_000 * step)
        (next, played) = try onFreshThread { [next, played] loop in
            let clock = RunLoop.ManualClock(autoAdvance: true)
            loop.use(clock)
            var (next, played) = (next, played)
            while next < end {
                let world = world(next)
                if isVerbose { print(world.source) }
                watchdog.begin(world.source)
                let found = try complaints(about: world, loop, clock)
                (next, played) = (next + step, played + 1)
                if found.isEmpty { continue }
                failures.change { $0.append("\(world.source)\n    \(found.joined(separator: "\n    "))") }
                break
            }
            return (next, played)
        }
    }
    watchdog.end()
    print("small worlds of streams: \(played) played, \(failures.value.count) failed")
    for failure in failures.value.prefix(20) { Issue.record(Comment(rawValue: failure)) }
}

private let isVerbose = getenv("SMALL_WORLDS_VERBOSE") != nil

private func complaints(about world: StreamWorld, _ loop: RunLoop, _ clock: RunLoop.ManualClock) throws -> [String] {
    var found = try playOnce(world, loop, clock)
    if found.isEmpty || !world.connection.hasDescriptors { return found }
    // A process that another test starts has copies of the peer's descriptors until it executes its program or ends. Until then nobody sees
    // the peer close, and manual time does not wait for it. A fault is there each time.
    try? waitUntil("the world is right when no process has copies", within: .seconds(60)) {
        found = try playOnce(world, loop, clock)
        return found.isEmpty
    }
    return found
}

private func playOnce(_ world: StreamWorld, _ loop: RunLoop, _ clock: RunLoop.ManualClock) throws -> [String] {
    let wire: any WorldWire =
        switch world.connection {
        case .memory: MemoryWire(seed: nil)
        case .splitMemory: MemoryWire(seed: 5)
        case .unixSocket: DescriptorWire(.socket)
        case .pipes: DescriptorWire(.pipes)
        }
    let stage = try StreamStage(world, on: loop, clock, wire, .scripted)
    let found = stage.play()
    // Handlers of a stream that did not end refer to it.
    if stage.weakStream != nil { _ = Unmanaged.passRetained(stage) }
    return found
}

@Suite(.tags(.memory, .lifetimes)) struct StreamSmallWorldsTests {
    @Test(arguments: [1, 2, 3]) func `every sequence of calls and acts keeps what a stream promises`(length: Int) throws {
        let worlds = StreamWorlds.All(length: length, connections: playsAll && length < 3 ? WorldConnection.allCases : [.memory])
        try play(worlds.count, stride: playsAll ? 1 : [1, 13, 1_009][length - 1]) { worlds[$0] }
    }

    @Test func `a sample of sequences over descriptors keeps what a stream promises`() throws {
        let worlds = StreamWorlds.All(length: 2, connections: [.splitMemory, .unixSocket, .pipes])
        try play(worlds.count, stride: 61) { worlds[$0] }
    }

    /// Each broke a promise when the machine first played it.
    @Test func `worlds that were wrong once are right`() throws {
        func world(
            _ connection: WorldConnection, _ place: WorldPlace, _ steps: [WorldStep], _ call: WorldTrouble.Call? = nil, _ number: Int = 0,
            _ what: WorldTrouble.What = .wantsInput
        ) -> StreamWorld {
            let trouble = call.map { WorldTrouble(call: $0, number: number, what: what) }
            return StreamWorld(connection: connection, place: place, steps: steps, trouble: trouble)
        }
        let worlds = [
            // The layer waits for what does not come any more.
            world(.memory, .afterHandshake, [.write, .peerBeginsTicket, .peerEnds, .finishWriting, .finishSending]),
            // The layer makes an answer behind its end.
            world(.unixSocket, .afterHandshake, [.finishSending, .onReceiveOne, .peerUpdatesKeys, .nestedRun, .peerAnswers]),
            // A handler is called in a run that the handler of room makes.
            world(.memory, .inRoom, [.onReceiveOne, .peerSends, .nestedRun]),
            // The peer has ended and was read, and then takes nothing.
            world(.pipes, .inPartialReceive, [.pause, .sendMuch, .closeAfterWriting, .peerCloses, .onRoom, .resume, .readLine]),
            // A stream is closing, cannot send, and waits for somebody to read.
            world(.unixSocket, .afterHandshake, [.peerSendsMuch, .closeAfterWriting, .release, .onReceive], .read, 3, .fails),
            world(.splitMemory, .afterHandshake, [.peerSendsMuch, .release, .peerResets], .finish, 1, .fails),
            // The layer waits for input of a peer that has ended, and the program has paused.
            world(.memory, .afterHandshake, [.write, .pause, .release, .peerEnds, .send, .closeAfterWriting], .write, 1, .wantsInput),
            world(
                .splitMemory, .afterHandshake,
                [
                    .peerBeginsTicket, .pause, .release, .peerBeginsTicket, .finishSending, .peerBeginsTicket, .resume, .peerCloses, .pause,
                    .write,
                ]),
            world(
                .pipes, .afterHandshake,
                [
                    .peerBeginsTicket, .closeAfterWriting, .pause, .pause, .peerSendsMuch, .release, .onReceiveOne, .peerTruncates,
                    .bytesAreInjected, .onReceive, .peerSends,
                ], .read, 2, .wantsInput),
            // A write fails after startTLS was refused: what the peer sends is read in the clear.
            world(
                .memory, .inPartialReceive,
                [.peerAnswers, .sendMuch, .peerSends, .finishWriting, .startTLS, .peerResets, .sendMuch, .writeMuch, .onReceiveOne]),
            world(
                .pipes, .inReceive,
                [
                    .startTLS, .startTLS, .sendMuch, .finishSending, .nestedRun, .onPeerFinish, .readLine, .resume, .peerBeginsTicket,
                    .startTLS,
                    .cancel, .peerSends, .peerResets, .peerTakes,
                ]),
            world(
                .memory, .apart,
                [
                    .writeMuch, .peerAnswers, .finishWriting, .onReceive, .startTLS, .nestedRun, .bytesAreInjected, .peerCloses, .onReceive,
                    .peerResets, .onEnd,
                ]),
            // A write fails before the pieces of the peer's last bytes have been granted.
            world(.splitMemory, .together, [.onRoom, .peerSends, .onReceiveOne, .peerCloses, .sendMuch]),
            world(
                .splitMemory, .together,
                [.peerTakes, .resume, .writeMuch, .peerSends, .peerAnswers, .peerResets, .onPeerFinish, .peerTakes, .peerSends]),
        ]
        try play(worlds.count * part.of) { worlds[$0 / part.of] }
    }

    @Test func `a world that loses something is reported`() throws {
        let world = StreamWorld(
            place: .afterHandshake, steps: [.send, .send], trouble: WorldTrouble(call: .write, number: 2, what: .loses))
        let found = try onFreshThread { loop in
            let clock = RunLoop.ManualClock(autoAdvance: true)
            loop.use(clock)
            return try complaints(about: world, loop, clock)
        }
        #expect(found == ["of 6 bytes that were accepted, the peer got 3"])
    }

    @Test func `random sequences with a layer that fails keep what a stream promises`() throws {
        try play(playsAll ? 200_000 : 600) { StreamWorlds.random(UInt64($0)) }
    }
}
