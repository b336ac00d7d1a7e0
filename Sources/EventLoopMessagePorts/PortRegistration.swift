// Takes a name, gives it back, and connects to the port that has it.
//
// Lifecycle: `take` creates a listener and `find` a connection. The caller closes it.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// A name that this process has taken: the file of a listening socket.
final class PortRegistration: Sendable {
    private let directory: PortDirectory
    private let file: String
    private let identity: FileIdentity?

    private init(_ directory: PortDirectory, _ file: String) {
        self.directory = directory
        self.file = file
        identity = directory.identity(of: file)
    }

    /// Takes the name, under the locks of all directories in which it may be. `timeout` limits the wait for all of them together.
    ///
    /// If the socket of that name accepts connections, a live port has the name. If it refuses them, its process has died, and the name is
    /// taken over. That holds only under the lock: without it, another process could be between `bind` and `listen`.
    static func take(
        _ name: PortName, backlog: Int32, in candidates: [PortDirectory.Candidate] = PortDirectory.candidates,
        timeout: Duration = PortDirectory.lockTimeout
    ) throws(RunLoop.PortError) -> (PortRegistration, listener: Int32) {
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        let home = try openHome(candidates)
        var others: [PortDirectory] = []
        for candidate in candidates {
            // Compared by identity: a directory with two paths has one lock, which must be taken once.
            guard let other = try open(candidate), !([home] + others).contains(where: { $0.isSame(as: other) }) else { continue }
            others.append(other)
        }
        // In the same order in every process, so that two processes cannot deadlock.
        var locks: [PortDirectory.Lock] = []
        for directory in ([home] + others).sorted(by: { $0.goesBefore($1) }) { locks.append(try directory.lock(until: deadline)) }
        defer { withExtendedLifetime(locks) {} }
        let file = name.fileName
        for directory in [home] + others where try isLive(file, in: directory) { throw .nameInUse }
        try removeStale(file, in: home)
        let listener = home.listen(at: file, backlog: backlog)
        if listener < 0 { throw .system(operation: "listening on \(home.path(of: file))", errno: errno) }
        return (PortRegistration(home, file), listener)
    }

    /// Opens an existing directory; nil if it is missing or not trusted. Throws if it cannot be examined, for example without a free
    /// descriptor: then it may contain anything.
    private static func open(_ candidate: PortDirectory.Candidate) throws(RunLoop.PortError) -> PortDirectory? {
        do { return try PortDirectory(candidate, making: false) } catch {
            switch error {
            case .missing, .untrusted: return nil
            case .system(let operation, let errno): throw .system(operation: operation, errno: errno)
            }
        }
    }

    /// Whether clients still find the file by its path. Throws if that cannot be determined now.
    var isInPlace: Bool {
        get throws(RunLoop.PortError) {
            guard let identity, let present = try Self.open(directory.candidate), present.isSame(as: directory) else { return false }
            return directory.identity(of: file) == identity
        }
    }

    /// Creates a descriptor that becomes readable when the file may have been removed. Returns a negative number with errno on failure.
    func watchFile() -> Int32 { directory.watch(file) }

    /// Gives the name back and removes the file, if the name still belongs to this registration. The caller closes the listener.
    func withdraw(timeout: Duration = PortDirectory.lockTimeout) {
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        // Without the lock, another process could be taking the name over right now. Then the file stays, and the next owner finds it
        // stale.
        guard let lock = try? directory.lock(timeout) else { return }
        if let identity, directory.identity(of: file) == identity { _ = directory.remove(file) }
        withExtendedLifetime(lock) {}
    }

    /// Removes the socket of a dead port. Other kinds of files refuse connections as well, but are kept.
    private static func removeStale(_ file: String, in home: PortDirectory) throws(RunLoop.PortError) {
        guard let status = home.status(of: file) else { return }
        if status.st_mode & mode_t(S_IFMT) != mode_t(S_IFSOCK) {
            throw .system(operation: "taking the name: \(home.path(of: file)) is not a socket", errno: EEXIST)
        }
        let code = home.remove(file)
        if code != 0 && code != ENOENT { throw .system(operation: "removing the stale socket \(home.path(of: file))", errno: code) }
    }

    private static func openHome(_ candidates: [PortDirectory.Candidate]) throws(RunLoop.PortError) -> PortDirectory {
        var refusal = PortDirectory.Refusal.missing(hasPlace: false)
        var last = ""
        for candidate in candidates {
            do { return try PortDirectory(candidate, making: true) } catch {
                refusal = error
                last = candidate.path
            }
        }
        switch refusal {
        case .missing: throw .system(operation: "creating the directory \(last)", errno: ENOENT)
        case .untrusted(let sentence): throw .system(operation: "checking a directory: \(sentence)", errno: EPERM)
        case .system(let operation, let errno): throw .system(operation: operation, errno: errno)
        }
    }

    private static func isLive(_ file: String, in directory: PortDirectory) throws(RunLoop.PortError) -> Bool {
        let connection = cplatform_connect_to(directory.socketPath(of: file), 0)
        if connection >= 0 {
            DescriptorCloser.end(connection)
            return true
        }
        switch errno {
        case ENOENT, ECONNREFUSED: return false
        // Its queue of connections is full, so there is a listener.
        case EAGAIN: return true
        case let code: throw .system(operation: "connecting to \(directory.path(of: file))", errno: code)
        }
    }

    /// Connects to the port that has the name. Returns the descriptor.
    static func find(
        _ name: PortName, timeout: Duration, in candidates: [PortDirectory.Candidate] = PortDirectory.candidates
    ) throws(RunLoop.PortError) -> Int32 {
        var (isRefused, hasPlace) = (false, false)
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        for candidate in candidates {
            let directory: PortDirectory
            do { directory = try PortDirectory(candidate, making: false) } catch {
                switch error {
                case .missing(let isThere): hasPlace = hasPlace || isThere
                case .untrusted: isRefused = true
                case .system(let operation, let code): throw .system(operation: operation, errno: code)
                }
                continue
            }
            hasPlace = true
            let left = max(0, RunLoop.Instant.now.duration(to: deadline).saturatedNanoseconds)
            let path = directory.socketPath(of: name.fileName)
            let connection = cplatform_connect_to(path, min(left / 1_000_000 + (left % 1_000_000 == 0 ? 0 : 1), 1 << 40))
            if connection < 0 {
                switch errno {
                case ENOENT, ECONNREFUSED: continue
                case EAGAIN: throw .sendTimedOut
                case EACCES: throw .notPermitted
                case let code: throw .system(operation: "connecting to \(directory.path(of: name.fileName))", errno: code)
                }
            }
            if PortPeer(of: connection)?.isOurUser == true { return connection }
            DescriptorCloser.end(connection)
            throw .notPermitted
        }
        // Another user's directory says nothing about the names of this user, if this user could create a directory elsewhere.
        throw isRefused && !hasPlace ? .notPermitted : .notFound
    }
}

/// The process at the other end of a connection, as the kernel reports it.
struct PortPeer: Sendable {
    let user: UInt32
    let process: Int32

    init?(of connection: Int32) {
        var (user, process) = (UInt32(0), Int32(0))
        if cplatform_peer(connection, &user, &process) != 0 { return nil }
        (self.user, self.process) = (user, process)
    }

    var isOurUser: Bool { user == geteuid() }
}
