// How NIO sleeps for a run loop.
//
// The run loop is hosted: a descriptor is readable when a step has something to do. NIO has no public way to watch a descriptor without
// reading it. So NIO is given a duplicate of the descriptor, as a pipe; and when NIO has put it into its epoll set, the duplicate's number is
// made to refer to an eventfd, whose reads always succeed. epoll(7): the set goes on watching the *open file description* that was added, as
// long as any descriptor refers to it, and `hosted.descriptor` does. NIO reads eight bytes of the eventfd for each event, and the step follows.
//
// Lifecycle of the number: made by `init`, closed by NIO with the channel. Before NIO removes it from its set or closes it, the number must
// refer to the watched file again, or the kernel finds no entry. NIO's own shutdown closes channels through their pipelines, so `close` below
// sees every close while the number is still NIO's.

#if NIO && os(Linux)

import CPlatform
import EventLoop
import Glibc
import NIOCore
import NIOPosix
import Synchronization

/// The channel that steps the run loop of an event loop's thread. NIO's pipeline retains it until the channel is closed.
final class StepChannel: ChannelInboundHandler, ChannelOutboundHandler, @unchecked Sendable {
    // SAFETY: touched on the event loop's thread only, but for `over`, which is atomic.
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = Never

    private let eventLoop: any NIOCore.EventLoop
    private let runLoop: RunLoop
    private let hosted: RunLoop.HostedLoop
    private let number: Int32
    private var channel: (any Channel)?
    /// NIO has the number, and closes it.
    private var isGiven = false
    /// The number refers to the eventfd.
    private var isSwapped = false
    /// While somebody observes the run loop's callouts.
    private var passes: PassReader?
    /// NIO's epoll set; nil if it is unknown.
    private var set: Int32?
    /// A step is among NIO's tasks.
    private var hasQueuedStep = false
    /// How many there were since NIO last read the number.
    private var queuedSteps = 0
    private let over = Atomic<Bool>(false)

    /// So many, and then one that NIO reaches through the kernel: NIO serves no channel while tasks add tasks.
    private static let mostQueuedSteps = 16

    /// The run loop is not hosted any more. Any thread.
    var isOver: Bool { over.load(ordering: .acquiring) }

    /// The channel of this thread, which belongs to one event loop. Not in a set of event loops, whose lock a forked child might inherit locked.
    private static let ofThread = ThreadSpecificVariable<StepChannel>()

    /// Hosts the run loop of this thread, which is the event loop's.
    init(on eventLoop: any NIOCore.EventLoop, mode: RunLoop.Mode) throws(RunLoop.SourceError) {
        let operation = "hosting a run loop on an event loop"
        if Self.ofThread.currentValue != nil { throw .system(operation: operation, errno: EALREADY) }
        self.eventLoop = eventLoop
        runLoop = .current
        hosted = try runLoop.hosted(mode: mode)
        number = fcntl(hosted.descriptor, F_DUPFD_CLOEXEC, 3)
        if number < 0 {
            let code = errno
            hosted.invalidate()
            throw .system(operation: operation, errno: code)
        }
        do {
            try register()
            try swap()
            Self.ofThread.currentValue = self
            hosted.setStepRequest { [unowned self] in queueStep() }
        } catch {
            // NIO has closed the number if it had it and failed.
            if let channel { channel.close(promise: nil) } else if !isGiven { Glibc.close(number) }
            hosted.invalidate()
            over.store(true, ordering: .releasing)
            if let error = error as? RunLoop.SourceError { throw error }
            if let error = error as? IOError { throw .system(operation: operation, errno: error.errnoCode) }
            let isShutDown = (error as? EventLoopError) == .shutdown
            throw .system(operation: operation, errno: isShutDown ? ESHUTDOWN : ENOTSUP)
        }
    }

    /// Gives the number to NIO. On its thread, NIO has done all of this when the call returns.
    private func register() throws {
        var failure: (any Error)?
        let future = NIOPipeBootstrap(group: eventLoop)
            .channelOption(.maxMessagesPerRead, value: 1)
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: MemoryLayout<UInt64>.size))
            .channelInitializer { [self] channel in
                isGiven = true
                return channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(self) }
            }
            .takingOwnershipOfDescriptor(input: number)
        future.assumeIsolated().whenComplete {
            switch $0 {
            case .success(let channel): self.channel = channel
            case .failure(let error): failure = error
            }
        }
        if let failure { throw failure }
        // Something else than epoll would go on with whatever the number refers to. Without /proc nobody can tell.
        switch epollSet(of: number) {
        case .found(let set): self.set = set
        case .unknown: break
        case .none: throw notSupported
        }
        if channel == nil { throw notSupported }
    }

    /// From now on NIO's reads succeed.
    private func swap() throws(RunLoop.SourceError) {
        let endless = cplatform_make_endless()
        guard endless >= 0 else { throw .system(operation: "making an eventfd", errno: errno) }
        defer { Glibc.close(endless) }
        let code = cplatform_redirect(number, endless)
        guard code == 0 else { throw .system(operation: "dup3", errno: code) }
        isSwapped = true
    }

    // MARK: Called by NIO

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { /* DOES CALLOUT */
        queuedSteps = 0
        step()
    }

    private func step() { /* DOES CALLOUT */
        hosted.step()
        // The run loop's `RunLoopThread` was stopped: further steps would do nothing, and leave the descriptor readable.
        if runLoop.isOver { return end() }
        if hosted.isObserved != (passes != nil) { observationHasChanged() }
    }

    /// A handler or a task of NIO has resumed a task of the run loop. False if the descriptor should say so.
    private func queueStep() -> Bool {
        if hasQueuedStep { return true }
        if queuedSteps == Self.mostQueuedSteps { return false }
        queuedSteps += 1
        hasQueuedStep = true
        eventLoop.execute { [self] in
            hasQueuedStep = false
            if !isOver { step() }
        }
        return true
    }

    /// A step has found that somebody observes the run loop's callouts, or that nobody does any more.
    private func observationHasChanged() {
        guard passes == nil, let set, !isOver else { return passes = nil }
        passes = PassReader.start(of: eventLoop, waitingOn: set, hosting: hosted)
        // Not tried again.
        if passes == nil { self.set = nil }
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        // The bootstrap closes the output, which a pipe with an input only does not have.
        if mode == .output { return context.close(mode: mode, promise: promise) }
        if isSwapped {
            isSwapped = false
            // dup3(2): EBADF also if the number is out of range, and a program may lower its limit. NIO then finds no entry in its set,
            // which it reports to this pipeline only, and the entry goes with the file, which `finish` closes.
            _ = cplatform_redirect(number, hosted.descriptor)
        }
        channel = nil
        context.close(mode: .all, promise: promise)
        finish()
    }

    // MARK: The end

    /// The run loop is its thread's again.
    func end() {
        channel?.close(promise: nil)
        finish()
    }

    private func finish() {
        if over.exchange(true, ordering: .acquiringAndReleasing) { return }
        // A callout of the run loop may be in progress, inside the pass. NIO's next task is outside, and before that of another host.
        if let reader = passes.take() { eventLoop.assumeIsolated().execute { reader.end() } }
        hosted.invalidate()
        Self.ofThread.currentValue = nil
    }
}

enum EpollSet: Equatable {
    case found(Int32)
    /// No set has the descriptor.
    case none
    /// /proc is missing.
    case unknown
}

/// The epoll set of this process that has the descriptor. Linear in the number of open descriptors.
func epollSet(of descriptor: Int32) -> EpollSet {
    // Not /proc/self, which has no descriptors when the main thread has ended (pthread_exit).
    guard let folder = opendir("/proc/thread-self/fd") else { return .unknown }
    defer { closedir(folder) }
    while let entry = readdir(folder) {  // ends with the folder
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: Int(NAME_MAX) + 1) { String(cString: $0) }
        }
        guard let set = Int32(name) else { continue }
        var target: [CChar] = Array(repeating: 0, count: 64)
        guard readlink("/proc/thread-self/fd/\(name)", &target, target.count - 1) > 0 else { continue }
        guard String(decoding: target.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self) == "anon_inode:[eventpoll]" else {
            continue
        }
        switch cplatform_epoll_contains(set, descriptor) {
        case 1: return .found(set)
        // Another thread has closed that set meanwhile; this thread's is open.
        case -1 where errno != ENOENT: return .unknown
        default: continue
        }
    }
    return .none
}

#endif
