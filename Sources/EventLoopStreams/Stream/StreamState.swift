// The state of a stream, guarded by its lock.

import EventLoop

/// Everything that the lock of a stream guards.
struct StreamState: ~Copyable {
    var receiving = Receiving()
    var sending = Sending()
    var handlers = Handlers()
    // Small ones together, because every idle stream has them.
    var phase = StreamPhase.open
    var isEndReported = false
    var isDeliveryScheduled = false
    /// The handler of room or that of the peer's end is being called. No other is called meanwhile, and `deliver` goes on when it returns.
    var isInCall = false
    /// The transport has closed inside a call of a handler, which `CallInProgress` has until that returns.
    var hasClosedInCall = false
    var interest = (read: true, write: false)
    var end: ByteStream.End?
    /// What ended the writing side after `end` had become `.endOfStream`.
    var laterEnd: LaterEnd?
    /// What few streams have: see StreamCore+Layer.swift.
    var layering: Layering?
    var timeouts: Timeouts?
    var peerFinish = PeerFinish()
    /// Of a server: called when the transport has left the loop.
    var closedHandler: (@Sendable () -> Void)?
    var lastTicket: UInt64 = 0
}

/// The receiving side.
struct Receiving: ~Copyable {
    var input = InputBuffer()
    /// Nothing more comes from the peer.
    var isEnded = false
    /// The program does not want to be read to.
    var isPaused = false
    /// A handler or a framing has the input.
    var isBusy = false
    /// Asked for while a handler has the input: it is called again for what it leaves.
    var callsAgain = false
    /// Another handler was set while one has the input, so the last call is not over with this one.
    var isHandlerReplaced = false
    /// Calls in a row that took nothing and set another handler.
    var callsInVain: UInt8 = 0
    /// The program wanted a layer and did not get it: nothing is read any more.
    var isShut = false
    /// The layer may have more than was asked for.
    var layerMayHaveMore = false
    /// The peer's last byte has come. The layer learns of it when everything is sent: if its own end is missing, it takes nothing from then on.
    var holdsEnd = false
    /// The handler has not been called for what is in the input, or for the end.
    var isNew = false
    /// The handler has been called with `isLast`, or a task has been given the end.
    var isEndTaken = false
    /// A task has read. From then on there is no handler.
    var isForTasks = false
    var reader: Reader?
    /// How many bytes tasks have taken. Framings learn from it that another caller has read.
    var consumed: UInt64 = 0
    var total: UInt64 = 0

    /// Bytes for a task.
    mutating func take(_ count: Int) -> [UInt8] {
        consumed &+= UInt64(count)
        return input.take(count)
    }
}

/// What has become of the bytes of a task. After `queuedLast`, which ends its turn, others come first; after `full`, the bytes are not queued.
enum Admission { case queued, queuedLast, full }

/// The sending side.
struct Sending: ~Copyable {
    /// What the program wrote.
    var output = OutputQueue()
    /// Comes before it: what the layer made. Nil for a stream that never had a layer.
    private var layered: LayeredOutput?
    /// Tasks that wait for room, and what `send` wrote behind them, in the order of the calls.
    var writers: [Sender] = []
    /// The bytes of `send` among these.
    var heldBack = 0
    /// Tasks that wait until everything is sent.
    var finishers: [Sender] = []
    /// No more may be written.
    var isFinishing = false
    /// The layer knows that no more comes.
    var isLayerFinished = false
    /// The layer takes nothing before more has come from the peer.
    var isLayerBlocked = false
    /// The peer knows that no more comes.
    var isFinished = false
    /// When everything is sent, the stream ends.
    var closesWhenFinished = false
    /// The kernel takes no more until it reports room.
    var isBlocked = false
    /// The handler that is being called has sent more than once: the later ones wait for each other until it returns.
    var isGathering = false
    /// Tasks have written in this pass of the loop, or a handler more than once: all of it is sent when the pass ends.
    var waitsForPassEnd = false
    /// How often the handler that is being called has sent: 0, 1, or 2 for more.
    var sendsInCall: UInt8 = 0
    /// The first bytes that a call of the handler sends wait until it returns, too: the call before has sent more than once.
    var firstWaits = false
    /// The level reached `highWater`, and the handler has not heard of room since.
    var wasFull = false
    /// The handler is to hear of room.
    var owesRoom = false
    /// A task that was cancelled has ended a turn with its goodbye. It does not end another one.
    private var hasSaidGoodbye = false
    /// What tasks have written since others had their turn, in units of 16 bytes, so that it takes two. They would keep their loop for themselves if the
    /// kernel always took everything.
    private var turn: UInt16 = 0
    /// The transport failed to take bytes. What has been received is delivered before the stream ends with this.
    var failure: RunLoop.SourceError?
    /// How many bytes of `wire` the layer made by itself, because of what came after its handshake.
    var answers = 0
    var total: UInt64 = 0

    /// Counts what a task writes. Nil if a cancelled one would end a second turn.
    mutating func takeTurn(_ count: Int) -> Admission? {
        let sum = Int(turn) + (count + 15) / 16
        if sum < 524_288 / 16 {
            turn = UInt16(sum)
            return .queued
        }
        let isCancelled = Task.isCancelled
        if isCancelled && hasSaidGoodbye { return nil }
        (turn, hasSaidGoodbye) = (0, isCancelled)
        return .queuedLast
    }

    /// What the kernel is to take next.
    var queued: Int { output.count + (layered?.queue.count ?? 0) }
    var waiting: Int { queued + heldBack }
    var isEmpty: Bool { output.isEmpty && isWireEmpty }
    var isWireEmpty: Bool { layered?.queue.isEmpty ?? true }

    var wire: OutputQueue {
        _read { if let layered { yield layered.queue } else { yield OutputQueue() } }
        _modify {
            let made = layered ?? LayeredOutput()
            layered = made
            yield &made.queue
        }
    }

    private final class LayeredOutput {
        var queue = OutputQueue()
    }
}

/// What the program wants to be called for.
struct Handlers {
    var receive: (@Sendable (ByteStream, inout ReceivedBytes) -> Void)?
    var room: (@Sendable (ByteStream) -> Void)?
    var end: (@Sendable (ByteStream, ByteStream.End) -> Void)?
    /// The object that they get. It keeps a stream with handlers alive until its end.
    var stream: ByteStream?
}

/// Few streams have one.
final class LaterEnd: Sendable {
    let end: ByteStream.End
    init(_ end: ByteStream.End) { self.end = end }
}

/// How far the end of a stream has come.
enum StreamPhase {
    case open
    /// Everything is sent, and what the peer still sends is dropped.
    case lingering
    /// The transport was asked to close.
    case closing
    /// The transport has left the loop.
    case closed
}
