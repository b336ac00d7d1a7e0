// The state of a stream, guarded by its lock.

import EventLoop

/// The receiving side.
struct Receiving: ~Copyable {
    var input = InputBuffer()
    /// Nothing more comes from the peer.
    var isEnded = false
    /// The program does not want to be read to.
    var isPaused = false
    /// A handler or a framing has the input.
    var isBusy = false
    /// The layer may have more than was asked for.
    var layerMayHaveMore = false
    /// The handler has not been called for what is in the input, or for the end.
    var isNew = false
    /// The handler has been called with `isLast`, or a task has been given the end.
    var isEndTaken = false
    var reader: Reader?
    /// A task has read. From then on there is no handler.
    var isForTasks = false
    /// How many bytes tasks have taken. Framings learn from it that another caller has read.
    var consumed: UInt64 = 0
    var total: UInt64 = 0

    /// Bytes for a task.
    mutating func take(_ count: Int) -> [UInt8] {
        consumed &+= UInt64(count)
        return input.take(count)
    }
}

/// The sending side.
struct Sending {
    /// What the program wrote.
    var output = OutputQueue()
    /// Comes before it: what the layer made.
    var wire = OutputQueue()
    /// Tasks that wait for room, in the order of their calls.
    var writers: [Sender] = []
    /// Tasks that wait until everything is sent.
    var finishers: [Sender] = []
    /// No more may be written.
    var isFinishing = false
    /// The layer knows that no more comes.
    var isLayerFinished = false
    /// The peer knows that no more comes.
    var isFinished = false
    /// When everything is sent, the stream ends.
    var closesWhenFinished = false
    /// The kernel takes no more until it reports room.
    var isBlocked = false
    /// The handler that is being called has sent more than once: the later ones wait for each other until it returns.
    var isGathering = false
    /// The handler that is being called has sent.
    var hasSentInCall = false
    /// The transport failed to take bytes. What has been received is delivered before the stream ends with this.
    var failure: RunLoop.SourceError?
    /// The level reached `highWater`, and the handler has not heard of room since.
    var wasFull = false
    /// The handler is to hear of room.
    var owesRoom = false
    /// The handler of room is being called. No other is called meanwhile, and `deliver` goes on when it returns.
    var isInRoomCall = false
    var total: UInt64 = 0

    var waiting: Int { output.count + wire.count }
    var isEmpty: Bool { output.isEmpty && wire.isEmpty }
}

/// What the program wants to be called for.
struct Handlers {
    var receive: (@Sendable (ByteStream, inout ReceivedBytes) -> Void)?
    var room: (@Sendable (ByteStream) -> Void)?
    var end: (@Sendable (ByteStream, ByteStream.End) -> Void)?
    /// The object that they get. It keeps a stream with handlers alive until its end.
    var stream: ByteStream?
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
