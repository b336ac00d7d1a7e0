// Taking a name, giving it back, and finding who has it.
//
// Lifecycle of a listener: made by `take`, closed by the port that it is handed to; of a connection: made by `find`, closed likewise.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A name that this process has: the file of a socket that listens.
final class PortRegistration: Sendable {
    private let directory: PortDirectory
    private let file: String
    private let identity: FileIdentity?

    private init(_ directory: PortDirectory, _ file: String) {
        self.directory = directory
        self.file = file
        identity = directory.identity(of: file)
    }

    /// Takes the name, under the locks of all directories in which it might be.
    ///
    /// A file of that name whose listener answers is a live port's. One that refuses connections while the lock is held is what a process left
    /// that has died, and is taken over; without the lock, it might be somebody's between `bind` and `listen`.
    static func take(
        _ name: PortName, backlog: Int32, in candidates: [PortDirectory.Candidate] = PortDirectory.candidates,
        timeout: Duration = PortDirectory.lockTimeout
    ) throws(RunLoop.PortError) -> (PortRegistration, listener: Int32) {
        let home = try openHome(candidates)
        var others: [PortDirectory] = []
        for candidate in candidates {
            // By what it is: one directory under two names (a slash more, a link on the way) has one lock, to be taken once.
            guard let other = try open(candidate), !([home] + others).contains(where: { $0.isSame(as: other) }) else { continue }
            others.append(other)
        }
        // In one order for everybody, whatever they call them, so that two that have several in common do not wait for each other.
        var locks: [PortDirectory.Lock] = []
        for directory in ([home] + others).sorted(by: { $0.goesBefore($1) }) { locks.append(try directory.lock(timeout)) }
        defer { withExtendedLifetime(locks) {} }
        let file = name.fileName
        for directory in [home] + others where try isLive(file, in: directory) { throw .nameInUse }
        try removeStale(file, in: home)
        let listener = home.listen(at: file, backlog: backlog)
        if listener < 0 { throw .system(operation: "listening on \(home.path(of: file))", errno: errno) }
        return (PortRegistration(home, file), listener)
    }

    /// Opens an existing directory; nil if it is missing or not trusted. Throws if it cannot be examined, for example without a free descriptor:
    /// then it may contain anything.
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

    /// A descriptor that becomes readable when the file may have gone; negative where there is none.
    func watchFile() -> Int32 { directory.watch(file) }

    /// Gives the name back, if it still is ours. The file goes; what listens is the caller's to close.
    func withdraw(timeout: Duration = PortDirectory.lockTimeout) {
        // Without the lock somebody may be taking the name over at this moment; then the file stays, and the next one finds it stale.
        guard let lock = try? directory.lock(timeout) else { return }
        if let identity, directory.identity(of: file) == identity { _ = directory.remove(file) }
        withExtendedLifetime(lock) {}
    }

    /// Removes the socket of a port that has died. Any other file refuses connections as well, and is somebody's.
    private static func removeStale(_ file: String, in home: PortDirectory) throws(RunLoop.PortError) {
        guard let status = home.status(of: file) else { return }
        if status.st_mode & mode_t(S_IFMT) != mode_t(S_IFSOCK) {
            throw .system(operation: "taking the name: \(home.path(of: file)) is no socket", errno: EEXIST)
        }
        let code = home.remove(file)
        if code != 0 && code != ENOENT { throw .system(operation: "removing what is left of \(home.path(of: file))", errno: code) }
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
        case .missing: throw .system(operation: "making the directory \(last)", errno: ENOENT)
        case .untrusted(let sentence): throw .system(operation: "trusting a directory: \(sentence)", errno: EPERM)
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
        // Its queue is full, so it has one.
        case EAGAIN: return true
        case let code: throw .system(operation: "asking who has \(directory.path(of: file))", errno: code)
        }
    }

    /// A connection to the port that has the name.
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
        // What others have made where ours would be is not ours, and says nothing of names, as long as there is a place for ours.
        throw isRefused && !hasPlace ? .notPermitted : .notFound
    }
}

/// Whose process is at the other end of a connection, as the kernel says.
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
