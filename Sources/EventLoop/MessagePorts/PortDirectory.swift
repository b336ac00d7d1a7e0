// Where the sockets of named ports are: a directory of the user's own, which is looked at before it is trusted.
//
// Lifecycle of the descriptors: a directory's is opened with the object and closed with it; a lock's likewise, and at once in a child of fork.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A directory that belongs to this user and that nobody else may enter, held open.
final class PortDirectory: Sendable {
    /// Names the only directory to use, made when it is missing.
    static let variable = "EVENTLOOP_PORT_DIRECTORY"
    private static let lockName = ".lock"
    /// How long somebody else may hold the lock. Whoever follows the rules holds it for microseconds.
    static let lockTimeout = Duration.seconds(5)

    let candidate: Candidate
    let path: String
    private let descriptor: Int32
    private let identity: FileIdentity

    enum Refusal: Error {
        /// Nobody has made it. If it is to be inside a directory of the user's own, `hasPlace` says whether that one is there.
        case missing(hasPlace: Bool)
        /// Another user's, open to others, or not a directory.
        case untrusted(String)
        case system(operation: String, errno: Int32)
    }

    /// Opens the directory and looks at it; with `making`, makes it when it is missing. What is done in it later goes through its descriptor,
    /// whatever its path leads to by then.
    init(_ candidate: Candidate, making: Bool) throws(Refusal) {
        PortForks.prepare()
        self.candidate = candidate
        path = Self.withoutEnd(candidate.path)
        // It would be another directory for a process that works elsewhere, and for this one after `chdir`.
        if !path.hasPrefix("/") { throw .system(operation: "using the directory \(path), which is no absolute path", errno: EINVAL) }
        let parent = candidate.parentIsOurs ? try Self.openParent(of: path) : -1
        defer { if parent >= 0 { close(parent) } }
        let name = candidate.parentIsOurs ? Self.lastPart(of: path) : path
        if making && cplatform_make_directory(parent, name) != 0 && errno != EEXIST {
            let code = errno
            throw code == ENOENT ? .missing(hasPlace: false) : .system(operation: "making the directory \(path)", errno: code)
        }
        let descriptor = cplatform_open_directory(parent, name)
        if descriptor < 0 { throw Self.refusal(path, errno, hasPlace: true) }
        var status = stat()
        let isKnown = fstat(descriptor, &status) == 0
        self.descriptor = descriptor
        identity = FileIdentity(status)
        if !isKnown || status.st_uid != geteuid() || status.st_mode & 0o077 != 0 {
            // Everything is initialized by now, so this ends in deinit, which closes the descriptor.
            throw .untrusted(
                isKnown && status.st_uid == geteuid() ? "\(path) is open to other users" : "\(path) belongs to another user")
        }
    }

    deinit { close(descriptor) }

    /// Whether both are one directory, whatever their paths.
    func isSame(as other: PortDirectory) -> Bool { identity == other.identity }

    /// An order that is the same in every process.
    func goesBefore(_ other: PortDirectory) -> Bool {
        (identity.device, identity.inode) < (other.identity.device, other.identity.inode)
    }

    /// Opens the directory around one of ours, which must be this user's too: another user's could exchange what is in it.
    private static func openParent(of path: String) throws(Refusal) -> Int32 {
        let parent = withoutEnd(String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)]))
        let descriptor = cplatform_open_directory(-1, parent)
        if descriptor < 0 { throw refusal(parent, errno, hasPlace: false) }
        var status = stat()
        if fstat(descriptor, &status) != 0 || status.st_uid != geteuid() || status.st_mode & 0o022 != 0 {
            close(descriptor)
            throw .untrusted("\(parent) is not this user's own")
        }
        return descriptor
    }

    private static func refusal(_ path: String, _ code: Int32, hasPlace: Bool) -> Refusal {
        switch code {
        case ENOENT: .missing(hasPlace: hasPlace)
        case ELOOP, ENOTDIR: .untrusted("\(path) is not a directory, or a symbolic link to one")
        case EACCES: .untrusted("\(path) belongs to another user")
        default: .system(operation: "opening the directory \(path)", errno: code)
        }
    }

    /// The path without slashes and dots at its end: with them the kernel follows a symbolic link that it would refuse.
    private static func withoutEnd(_ path: String) -> String {
        var path = Substring(path)
        while path.hasSuffix("/") || path.hasSuffix("/.") { path.removeLast() }  // ends: it gets shorter
        return path.isEmpty ? "/" : String(path)
    }

    private static func lastPart(of path: String) -> String { String(path[(path.lastIndex(of: "/") ?? path.startIndex)...].dropFirst()) }

    // MARK: Files

    /// The path of a file in it, for messages.
    func path(of file: String) -> String { path + "/" + file }

    /// The path of a file in it, for a socket's address: by way of the open descriptor, so that nobody can exchange the directory, and so
    /// that a long path has room. Without /proc, and on other systems, it is the path itself; who binds then looks where the file is.
    func socketPath(of file: String) -> String {
        #if os(Linux)
        let directory = "/proc/self/fd/\(descriptor)"
        if access(directory, F_OK) == 0 { return directory + "/" + file }
        #endif
        return path(of: file)
    }

    /// The file of that name, not what a symbolic link points to; nil when there is none.
    func status(of file: String) -> stat? {
        var status = stat()
        return fstatat(descriptor, file, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status : nil
    }

    func identity(of file: String) -> FileIdentity? { status(of: file).map { FileIdentity($0) } }

    /// Binds a socket in it and listens. Negative with errno.
    func listen(at file: String, backlog: Int32) -> Int32 { cplatform_listen_in(descriptor, file, socketPath(of: file), backlog) }

    /// See `PortRegistration.watchFile`.
    func watch(_ file: String) -> Int32 { cplatform_watch_file(socketPath(of: "."), socketPath(of: file)) }

    /// Zero, or the errno.
    func remove(_ file: String) -> Int32 { unlinkat(descriptor, file, 0) == 0 ? 0 : errno }

    // MARK: The lock

    /// Held while the object lives. Names are taken and given back under it and in no other way.
    final class Lock: Sendable {
        private let descriptor: Int32
        fileprivate init(_ descriptor: Int32) { self.descriptor = descriptor }
        deinit {
            lockDescriptors.withLock { open in
                // In a child of fork the lock is its parent's.
                guard let place = open.firstIndex(of: descriptor) else { return }
                open.remove(at: place)
                // A child of vfork has the same open file, so that closing ours would not let go of the lock.
                cplatform_unlock_file(descriptor)
                close(descriptor)
            }
        }
    }

    /// The locks' descriptors. A lock goes with the last copy of its descriptor, and a child of fork has a copy: if it lived on and its parent
    /// were killed, nobody would get the lock. So each is opened and closed under this lock, and a child closes what it finds.
    private static let lockDescriptors = ForkAwareMutex<[Int32]>([])

    static func holdOverFork() {
        _ = lockDescriptors.lockValue()
        _ = testsOnly.lockValue()
    }

    static func release(inChild: Bool) {
        if inChild {
            for descriptor in lockDescriptors.lockedValue().pointee { close(descriptor) }
            lockDescriptors.lockedValue().pointee.removeAll(keepingCapacity: true)
        }
        testsOnly.unlock()
        lockDescriptors.unlock()
    }

    private enum Attempt: Sendable {
        case locked(Int32)
        case isTaken
        case failed(operation: String, errno: Int32)
    }

    private func tryLock() -> Attempt {
        Self.lockDescriptors.withLock { open in
            let descriptor = cplatform_open_lock_file(self.descriptor, Self.lockName)
            if descriptor < 0 { return .failed(operation: "opening the lock", errno: errno) }
            if cplatform_try_lock_file(descriptor) == 0 {
                open.append(descriptor)
                return .locked(descriptor)
            }
            let code = errno
            close(descriptor)
            return code == EWOULDBLOCK ? .isTaken : .failed(operation: "locking", errno: code)
        }
    }

    /// Waits for the lock, in real time and for a few seconds at most: whoever holds it longer does not play by the rules. A patience of zero
    /// tries once or twice.
    func lock(_ timeout: Duration = lockTimeout) throws(RunLoop.PortError) -> Lock {
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        while true {  // ends: with the lock, an error, or the deadline
            let file = path(of: Self.lockName)
            switch tryLock() {
            case .failed(let operation, let code): throw .system(operation: "\(operation) \(file)", errno: code)
            case .isTaken: usleep(500)
            case .locked(let descriptor):
                let lock = Lock(descriptor)
                // Somebody may tidy the directory: a lock on a file that has gone is nobody's.
                if let held = FileIdentity(of: descriptor), held == identity(of: Self.lockName) { return lock }
            }
            if RunLoop.Instant.now > deadline { throw .system(operation: "waiting for the lock \(file)", errno: ETIMEDOUT) }
        }
    }
}

extension PortDirectory {
    /// A place where ports may be.
    struct Candidate: Sendable, Equatable {
        let path: String
        /// The directory around it must be this user's too: an inherited XDG_RUNTIME_DIR may be another user's.
        let parentIsOurs: Bool
    }

    // For tests, which must not change the environment of a process with many threads.
    private static let testsOnly = ForkAwareMutex<[Candidate]?>(nil)
    static func testsOnlyUse(_ candidates: [Candidate]?) { testsOnly.withLock { $0 = candidates } }

    /// Where to look, in this order; a new port is put into the first that can be used.
    static var candidates: [Candidate] {
        if let candidates = testsOnly.withLock({ $0 }) { return candidates }
        return candidates(named: text(of: variable), runtimeDirectory: text(of: "XDG_RUNTIME_DIR"), user: geteuid())
    }

    /// Programs of one user find one another whether XDG_RUNTIME_DIR is set for them or not (it is not for cron and for system units): the
    /// directory it usually names is looked at in any case, and so is the one for those who have none.
    static func candidates(named: String?, runtimeDirectory: String?, user: UInt32) -> [Candidate] {
        if let named, !named.isEmpty { return [Candidate(path: named, parentIsOurs: false)] }
        var found: [Candidate] = []
        // The specification of XDG_RUNTIME_DIR: "All paths set in these environment variables must be absolute."
        for base in [runtimeDirectory, usualRuntimeDirectory(user)] {
            guard let base, base.hasPrefix("/") else { continue }
            let candidate = Candidate(path: base + "/eventloop-ports", parentIsOurs: true)
            if !found.contains(candidate) { found.append(candidate) }
        }
        return found + [Candidate(path: "/tmp/eventloop-ports-\(user)", parentIsOurs: false)]
    }

    private static func usualRuntimeDirectory(_ user: UInt32) -> String? {
        #if os(Linux)
        "/run/user/\(user)"
        #else
        nil
        #endif
    }

    private static func text(of variable: String) -> String? { getenv(variable).map { String(cString: $0) } }
}
