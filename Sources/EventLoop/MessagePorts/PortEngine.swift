// The library's own thread for the clients of named ports: it hears of a server's death, takes replies that nobody waits for on a thread of
// their own, and sends what there was no room for.
//
// Lifecycle: made when the process makes its first RemoteMessagePort, and never ended. In a child of fork there is a new one.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// All connections of this process to named ports, in one set, on one thread.
final class PortEngine: @unchecked Sendable {
    // SAFETY: constants, atomics and a lock; `set` is the kernel's, which any thread may change; `events` is touched on the thread only.

    private static let current = ForkAwareMutex<PortEngine?>(nil)

    let set: cplatform_port_set
    private let connections = ForkAwareMutex<[UInt64: RemoteConnection]>([:])
    private let lastToken = Atomic<UInt64>(UInt64(CPLATFORM_ALARM_TOKEN))
    private let events: UnsafeMutableBufferPointer<cplatform_port_event>
    private let thread: RunLoopThread

    /// The one of this process.
    static func shared() throws(RunLoop.PortError) -> PortEngine {
        PortForks.prepare()
        if let existing = current.withLock({ $0 }) { return existing }
        let made = try PortEngine()
        // Before anybody can find it: an engine that hears nothing would let every request time out.
        try made.start()
        let engine = current.withLock { current in
            let engine = current ?? made
            current = engine
            return engine
        }
        if engine !== made { made.thread.stop() }
        return engine
    }

    /// Before a fork: nobody is in the middle of a change.
    static func holdOverFork() { _ = current.lockValue() }

    static func release(inChild: Bool) {
        if inChild {
            // The parent's: its thread does not exist here, and nothing may be taken from its set. Kept for ever.
            if let inherited = current.lockedValue().pointee { _ = Unmanaged.passRetained(inherited) }
            current.lockedValue().pointee = nil
        }
        current.unlock()
    }

    var runLoop: RunLoop { thread.runLoop }

    private init() throws(RunLoop.PortError) {
        var set = cplatform_port_set()
        if cplatform_make_port_set(&set) != 0 { throw .system(operation: "making a set of descriptors", errno: errno) }
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
            // The engine's thread watches it at once, and says whether it can.
            try? runLoop.performAndWait { [runLoop] in _ = runLoop.add(source) }
            if let failure = source.failure { throw failure }
        } catch {
            thread.stop()
            throw .system(operation: "watching a set of descriptors", errno: error.errno)
        }
    }

    func nextToken() -> UInt64 { lastToken.add(1, ordering: .relaxed).newValue }

    func add(_ connection: RemoteConnection) { connections.withLock { $0[connection.token] = connection } }

    func remove(_ token: UInt64) {
        // Let go of outside the lock: it may be the last.
        let removed = connections.withLock { $0.removeValue(forKey: token) }
        withExtendedLifetime(removed) {}
    }

    private func takeEvents() { /* DOES CALLOUT */
        var set = set
        let count = cplatform_port_set_take(&set, events.baseAddress, Int32(events.count))
        for index in 0..<Int(count) {
            let event = events[index]
            let connection = connections.withLock { $0[event.token] }
            connection?.isReady(Readiness(rawValue: event.ready))
        }
    }
}
