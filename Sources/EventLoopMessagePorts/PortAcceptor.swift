// The listening end of a LocalMessagePort: accepts clients, and keeps the port's name.
//
// Lifecycle: the listener and the file watch are created with the acceptor. `end` closes the watch, and the later one of `withdraw` and `end`
// closes the listener. When the socket's file is removed, as at a logout together with its directory, the acceptor replaces both.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// The listening socket of a port, its name, and the watch for the socket's file, in the port's set of descriptors.
final class PortAcceptor: @unchecked Sendable {
    // SAFETY: constants and a lock. Everything else is touched only by the thread that serves the port.

    static let listenerToken: UInt64 = 1
    static let nameToken: UInt64 = 2

    private static let backlog: Int32 = 1024
    private static let shortestRetry = Duration.milliseconds(100)
    private static let longestRetry = Duration.seconds(60)

    private let name: PortName
    private let set: cplatform_port_set
    private let clock: @Sendable () -> RunLoop.Instant

    /// What `withdraw` needs, from any thread.
    private struct Place: Sendable {
        var registration: PortRegistration
        var listener: Int32
        /// `withdraw` was called.
        var isWithdrawn = false
        /// `withdraw` needs the listener no more.
        var isReleased = false
        /// `withdraw` has found the listener's queue empty.
        var isDrained = false
        /// `end` was called.
        var hasEnded = false
    }
    private let place: LoopLock<Place>
    private let mark = ProcessMark()

    // SAFETY: touched only by the thread that serves the port.
    private var registration: PortRegistration
    private var listener: Int32
    /// While the process has no free descriptor, or no memory: when to accept again.
    private var pausedUntil: RunLoop.Instant?
    /// Becomes readable when the socket's file is removed; negative if there is no watch.
    private var nameWatch: Int32 = -1
    /// When to call `checkName` again, if the last check could not be completed.
    private var nameRetry: (at: RunLoop.Instant, pause: Duration)?
    /// Another port has the name.
    private(set) var hasLostName = false

    /// Takes the name and listens. `set` must outlive the acceptor.
    init(_ name: PortName, set: cplatform_port_set, clock: @escaping @Sendable () -> RunLoop.Instant) throws(RunLoop.PortError) {
        (self.name, self.set, self.clock) = (name, set, clock)
        (registration, listener) = try Self.listen(name, set)
        place = LoopLock(Place(registration: registration, listener: listener))
        if !watchName() { retryNameLater() }
    }

    /// Takes the name and adds the listener to the set.
    private static func listen(
        _ name: PortName, _ set: cplatform_port_set, timeout: Duration = PortDirectory.lockTimeout
    ) throws(RunLoop.PortError) -> (PortRegistration, Int32) {
        let (registration, listener) = try PortRegistration.take(name, backlog: backlog, timeout: timeout)
        var set = set
        if cplatform_port_set_watch(&set, listener, listenerToken, Readiness.read.rawValue, true) == 0 { return (registration, listener) }
        let code = errno
        registration.withdraw()
        cplatform_close(listener)
        throw .system(operation: "watching the socket of the message port \(quoted(name.text))", errno: code)
    }

    // MARK: Accepting

    enum Accepted {
        case client(Int32, PortPeer)
        case nobody
        /// A client waits, but the process has no free descriptor.
        case noDescriptor
        /// The system is out of another resource.
        case failed
    }

    var isPaused: Bool { pausedUntil != nil }

    /// Accepts one client of this user.
    func accept() -> Accepted {
        while true {  // ends: each iteration takes a client off the listener's queue
            let descriptor = cplatform_accept_client(listener)
            if descriptor < 0 {
                switch errno {
                case EAGAIN: return .nobody
                // Linux reserves the number first, so accept(2) fails even if nobody waits. Then nobody has to be evicted.
                case EMFILE: return cplatform_is_readable(listener) ? .noDescriptor : .nobody
                default: return .failed
                }
            }
            if let peer = PortPeer(of: descriptor), peer.isOurUser { return .client(descriptor, peer) }
            DescriptorCloser.end(descriptor)
        }
    }

    /// Stops accepting for a moment. Clients wait in the kernel's queue; retrying at once would be a spin.
    func pause() {
        var set = set
        cplatform_port_set_forget(&set, listener)
        pausedUntil = clock().advanced(by: Self.shortestRetry)
    }

    func resume() {
        var set = set
        // If the kernel has no memory for the watch, the port would never accept again. So it retries.
        let isWatched = cplatform_port_set_watch(&set, listener, Self.listenerToken, Readiness.read.rawValue, true) == 0
        pausedUntil = isWatched ? nil : clock().advanced(by: Self.shortestRetry)
    }

    // MARK: Retries

    /// When to call `retry` at the latest; nil if nothing is to be retried.
    var nextRetry: RunLoop.Instant? {
        guard let pausedUntil else { return nameRetry?.at }
        return nameRetry.map { min($0.at, pausedUntil) } ?? pausedUntil
    }

    /// Retries whatever is due. See `checkName`.
    func retry(acceptingQueued accept: () -> Void) {
        guard let next = nextRetry else { return }
        let now = clock()
        if now < next { return }
        if let pausedUntil, pausedUntil <= now { resume() }
        if let nameRetry, nameRetry.at <= now { checkName(acceptingQueued: accept) }
    }

    private func retryNameLater() {
        let pause = min(nameRetry.map { $0.pause * 2 } ?? Self.shortestRetry, Self.longestRetry)
        nameRetry = (clock().advanced(by: pause), pause)
    }

    // MARK: The name

    var isNameWatched: Bool { nameWatch >= 0 }
    var testsOnlyRetriesName: Bool { nameRetry != nil }

    /// Watches for the removal of the socket's file and for a move of its directory. Returns false if the caller has to retry: the system
    /// is out of a resource, or the file is gone already. Returns true on a system without such a watch, where a removal goes unnoticed.
    private func watchName() -> Bool {
        nameWatch = registration.watchFile()
        if nameWatch < 0 { return errno == ENOSYS }
        var set = set
        if cplatform_port_set_watch(&set, nameWatch, Self.nameToken, Readiness.read.rawValue, true) == 0 { return true }
        unwatchName()
        return false
    }

    func unwatchName() {
        if nameWatch < 0 { return }
        if mark.isOurs {
            var set = set
            cplatform_port_set_forget(&set, nameWatch)
        }
        cplatform_close(nameWatch)
        nameWatch = -1
    }

    /// Takes the name again if the socket's file is gone. Called when the watch reports a change, or for a retry.
    ///
    /// `accept` accepts the clients that are already in the queue of the old listener.
    func checkName(acceptingQueued accept: () -> Void) {
        cplatform_drain_file_watch(nameWatch)
        if hasLostName {
            nameRetry = nil
            return
        }
        // First the watch, then the check, so that a removal in between is noticed.
        var isWatched = isNameWatched || watchName()
        do throws(RunLoop.PortError) {
            do throws(RunLoop.PortError) {
                if try !registration.isInPlace { isWatched = try takeNameAgain(acceptingQueued: accept) }
            } catch .nameInUse {
                // The directory may be back, so that the port that answered is this one. Otherwise another port has the name, and this one
                // must end: a name has one owner.
                hasLostName = try !registration.isInPlace
            }
            if isWatched || hasLostName { nameRetry = nil } else { retryNameLater() }
        } catch {
            retryNameLater()
        }
    }

    /// Returns whether the new file is watched, or cannot be on this system; false if `watchName` has to be retried.
    private func takeNameAgain(acceptingQueued accept: () -> Void) throws(RunLoop.PortError) -> Bool {
        let new = try Self.listen(name, set, timeout: .zero)
        accept()
        let isWithdrawn = place.withLock { place in
            if !place.isWithdrawn { (place.registration, place.listener) = new }
            return place.isWithdrawn
        }
        if isWithdrawn {
            closeListener(new, timeout: PortDirectory.lockTimeout)
            return true
        }
        // The old file may be in a directory that was moved away.
        closeListener((registration, listener), timeout: .zero)
        (registration, listener) = new
        pausedUntil = nil
        unwatchName()
        return watchName()
    }

    private func closeListener(_ old: (registration: PortRegistration, listener: Int32), timeout: Duration) {
        old.registration.withdraw(timeout: timeout)
        var set = set
        cplatform_port_set_forget(&set, old.listener)
        DescriptorCloser.end(old.listener)
    }

    // MARK: The end

    // `withdraw` and `end` may run at the same time, and in either order: several threads may invalidate a port while its loop ends. The
    // later one closes the listener, so that neither uses its number after another file has it.

    /// Gives the name back and disconnects the clients that are still in the queue. Thread-safe; called once.
    func withdraw() {
        let (registration, listener) = place.withLock { place in
            place.isWithdrawn = true
            return (place.registration, place.listener)
        }
        registration.withdraw()
        cplatform_shutdown(listener)
        while case let client = cplatform_accept_client(listener), client >= 0 { DescriptorCloser.end(client) }  // ends: no new ones
        // Without a free descriptor some clients stay in the queue.
        let isDrained = cplatform_accept_failure(errno) != CPLATFORM_ACCEPT_EXHAUSTED
        let hasEnded = place.withLock { place in
            (place.isReleased, place.isDrained) = (true, isDrained)
            return place.hasEnded
        }
        if hasEnded { Self.closeListener(listener, isDrained) }
    }

    /// Closes everything. For the caller who knows that nobody serves the port any more; `withdraw` was called, or will be.
    func end() {
        unwatchName()
        if !mark.isOurs {
            cplatform_close(listener)
            return
        }
        let (isReleased, isDrained) = place.withLock { place in
            place.hasEnded = true
            return (place.isReleased, place.isDrained)
        }
        if isReleased { Self.closeListener(listener, isDrained) }
    }

    private static func closeListener(_ listener: Int32, _ isDrained: Bool) {
        // Its queue may hold messages that nobody has read.
        if isDrained { cplatform_close(listener) } else { DescriptorCloser.close(listener, from: 0) }
    }

    /// Whether `withdraw` was called.
    var testsOnlyIsWithdrawn: Bool { place.withLock { $0.isWithdrawn } }
}
