// A small world of a stream: a few steps of the program and of its peer, performed from one place, over one kind of connection. A world is
// data, so that it can be enumerated and printed.

#if canImport(EventLoopTestSupport)
import EventLoopTestSupport
#else
import TestSupport
#endif

/// What lies between the stream and its peer.
enum WorldConnection: String, CaseIterable, Sendable {
    case memory, splitMemory, unixSocket, pipes

    var hasDescriptors: Bool { self == .unixSocket || self == .pipes }
}

/// From where the program performs the steps.
enum WorldPlace: String, CaseIterable, Sendable {
    /// On the loop's thread, with passes of the loop between the steps.
    case apart
    /// On the loop's thread, without a pass between the steps.
    case together
    /// While a task reads all the time.
    case besideReader
    /// In a handler that has taken everything, or one byte of it.
    case inReceive, inPartialReceive
    /// On another thread, while the handler for received bytes waits for it.
    case onThread
    case inRoom, inEnd
    /// Between the beginning and the end of a handshake, and after it.
    case inHandshake, afterHandshake
}

/// A call of the program, or an act of its peer.
enum WorldStep: String, CaseIterable, Sendable {
    case send, sendMuch, write, writeMuch, read, readExactly, readLine, finishSending, finishWriting, close, closeAfterWriting, startTLS
    case onReceive, onReceiveOne, onRoom, onEnd, onPeerFinish, pause, resume, cancel, release, nestedRun
    case peerSends, peerSendsMuch, peerEnds, peerTruncates, peerCloses, peerResets, peerTakes
    /// Says what its side of the handshake has to say.
    case peerAnswers
    /// A ticket of TLS 1.3 in two records: between the two, a layer takes nothing.
    case peerBeginsTicket, peerEndsTicket
    case peerUpdatesKeys
    /// Somebody on the way sends bytes that are not encrypted.
    case bytesAreInjected
    /// So long that every timeout is over.
    case timePasses

    var isOfPeer: Bool {
        switch self {
        case .peerSends, .peerSendsMuch, .peerEnds, .peerTruncates, .peerCloses, .peerResets, .peerTakes, .peerAnswers, .peerBeginsTicket,
            .peerEndsTicket, .peerUpdatesKeys, .bytesAreInjected, .timePasses:
            true
        default: false
        }
    }
}

/// What a layer does wrong, in its nth call of one kind.
struct WorldTrouble: Hashable, Sendable {
    enum Call: String, CaseIterable, Sendable { case handshake, read, write, finish }
    enum What: String, Sendable {
        /// Takes or gives nothing before more has come.
        case wantsInput
        case fails
        /// Says that it has taken what it has dropped. No stream can notice that, but the machine must.
        case loses
    }
    var call: Call
    var number: Int
    var what: What

    static let all = Call.allCases.flatMap { call in
        [What.wantsInput, .fails].flatMap { what in (1...3).map { WorldTrouble(call: call, number: $0, what: what) } }
    }
}

struct StreamWorld: Hashable, Sendable {
    var connection = WorldConnection.memory
    var place: WorldPlace
    var steps: [WorldStep]
    var trouble: WorldTrouble?

    /// The expression that makes this world.
    var source: String {
        let trouble = trouble.map { ", trouble: WorldTrouble(call: .\($0.call), number: \($0.number), what: .\($0.what))" } ?? ""
        let steps = steps.map { ".\($0)" }.joined(separator: ", ")
        return "StreamWorld(connection: .\(connection), place: .\(place), steps: [\(steps)]\(trouble))"
    }
}

enum StreamWorlds {
    /// Every sequence of so many steps, in every place. A world is found by its number, so that a sample costs what it plays.
    struct All: Sendable {
        let length: Int
        let connections: [WorldConnection]
        private var steps: Int { WorldStep.allCases.count }

        var count: Int { (0..<length).reduce(connections.count * WorldPlace.allCases.count) { count, _ in count * steps } }

        subscript(number: Int) -> StreamWorld {
            var rest = number
            func digit(_ base: Int) -> Int {
                defer { rest /= base }
                return rest % base
            }
            let place = WorldPlace.allCases[digit(WorldPlace.allCases.count)]
            let sequence = (0..<length).map { _ in WorldStep.allCases[digit(steps)] }
            return StreamWorld(connection: connections[digit(connections.count)], place: place, steps: sequence)
        }
    }

    /// A longer world that a seed decides, with a layer that fails in two of three.
    static func random(_ seed: UInt64) -> StreamWorld {
        var random = SplitMix64(seed: seed)
        let steps = (0..<(4 + random.below(12))).map { _ in random.pick(WorldStep.allCases) }
        let isLayered = random.below(3) > 0
        return StreamWorld(
            connection: random.pick(WorldConnection.allCases),
            place: isLayered
                ? random.pick([WorldPlace.afterHandshake, .inHandshake, .inReceive, .onThread]) : random.pick(WorldPlace.allCases),
            steps: isLayered && random.below(2) > 0 ? [.startTLS, .peerAnswers] + steps : steps,
            trouble: isLayered ? random.pick(WorldTrouble.all) : nil)
    }
}
