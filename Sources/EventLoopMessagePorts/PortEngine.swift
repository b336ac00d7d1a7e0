// The library's thread for the client side of named ports. It notices when a server dies, reads replies for which no thread blocks, and
// sends frames that a socket had no room for.
//
// Lifecycle: created with the first RemoteMessagePort of the process. It ends only if a closure of the program ends its thread (`pthread_exit`);
// the next RemoteMessagePort creates another one.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
import Synchronization

/// All connections of this process to named ports, in one set, on one thread.
final class PortEngine: @unchecked Sendable {
    // SAFETY: constants, atomics and a lock. The kernel synchronizes `set`. `events` is touched only on the engine's thread.

    private static let current = LoopLock<PortEngine?>(nil)

    let set: cplatform_port_set
    private struct Connections: Sendable {
        var byToken: [UInt64: RemoteConnection] = [:]
        /// Nobody watches them any more.
        var isOver = false
    }
    private let connections = LoopLock(Connections())
    private let lastToken = Atomic<UInt64>(UInt64(CPLATFORM_ALARM_TOKEN))
    private let events: UnsafeMutableBufferPointer<cplatform_port_event>
    private let thread: RunLoopThread

    /// The engine of this process.
    static func shared() throws(RunLoop.PortError) -> PortEngine {
        PortGlobals.prepare()
        if let existing = current.withLock({ $0 }) { return existing }
        try DescriptorCloser.start()
        let made = try PortEngine()
        // Started before it is published: with an engine that watches nothing, every request would time out.
        try made.start()
        let engine = current.withLock { current in
            let engine = current ?? made
            current = engine
            return engine
        }
        if engine !== made { made.thread.stop() }
        return engine
    }

    static func hold() { _ = current.lockValue() }

    static func release(inChild: Bool) {
        if inChild {
            // The parent's engine is never released: its set is the parent's.
            if let engine = current.lockedValue().pointee { _ = Unmanaged.passRetained(engine) }
            current.lockedValue().pointee = nil
        }
        current.unlock()
    }

    var runLoop: RunLoop { thread.runLoop }

    private init() throws(RunLoop.PortError) {
        var set = cplatform_port_set()
        if cplatform_make_port_set(&set) != 0 {
            throw .system(operation: "creating a set of descriptors for connections to message ports", errno: errno)
        }
        self.set = set
        do {
            thread = try RunLoopThread(name: "message-ports", setup: { _ in blockSignals() })
        } catch {
            cplatform_close_port_set(&set)
            throw .system(operation: "starting the thread of the message ports", errno: (error as? RunLoop.SourceError)?.errno ?? EAGAIN)
        }
        events = .allocate(capacity: 64)
    }

    deinit {
        var set = set
        cplatform_close_port_set(&set)
        events.deallocate()
    }

    private func start() throws(RunLoop.PortError) {
        do throws(RunLoop.SourceError) {
            let source = try RunLoop.DescriptorSource(descriptor: set.set, events: .read, label: "message ports") { [self] _, _ in
                takeEvents()
            }
            source.endWithLoop()
            source.onInvalidation { [self] in endConnections() }
            // The engine's thread adds the source before this returns, and reports a failure.
            try? runLoop.performAndWait { [runLoop] in _ = runLoop.add(source) }
            if let failure = source.failure { throw failure }
        } catch {
            thread.stop()
            throw .system(operation: "watching the connections to message ports", errno: error.errno)
        }
    }

    func nextToken() -> UInt64 { lastToken.add(1, ordering: .relaxed).newValue }

    /// Returns false if nobody would watch the connection, because the engine's thread has ended.
    func add(_ connection: RemoteConnection) -> Bool {
        connections.withLock { connections in
            if !connections.isOver { connections.byToken[connection.token] = connection }
            return !connections.isOver
        }
    }

    func remove(_ token: UInt64) {
        // Released outside the lock: this may be the last reference.
        let removed = connections.withLock { $0.byToken.removeValue(forKey: token) }
        withExtendedLifetime(removed) {}
    }

    private func takeEvents() { /* DOES CALLOUT */
        var set = set
        let count = cplatform_port_set_take(&set, events.baseAddress, Int32(events.count))
        for index in 0..<Int(count) {
            let event = events[index]
            let connection = connections.withLock { $0.byToken[event.token] }
            connection?.isReady(Readiness(rawValue: event.ready))
        }
    }

    /// The engine's thread ends, or its source has failed: nobody watches its connections any more.
    private func endConnections() { /* DOES CALLOUT */
        guard runLoop.isOurs else { return }
        Self.current.withLock { if $0 === self { $0 = nil } }
        thread.stop()
        // A closure may end the thread again.
        CallInProgress.callForEach({ self.takeConnection() }, { $0.end(.becameInvalid) })
    }

    private func takeConnection() -> RemoteConnection? {
        connections.withLock { connections in
            connections.isOver = true
            return connections.byToken.popFirst()?.value
        }
    }
}
