// The directory with the sockets of named ports. It belongs to the user, which is checked before it is used.
//
// Lifecycle of the descriptors: the descriptor of a directory is opened in `init` and closed in `deinit`. So is the descriptor of a lock; a
// child closes it at once.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// An open directory that belongs to this user and that no other user may enter.
final class PortDirectory: Sendable {
    /// The environment variable for the only directory to use, which is created if it is missing.
    static let variable = "EVENTLOOP_PORT_DIRECTORY"
    private static let lockName = ".lock"
    /// How long to wait for the lock. This library holds it for microseconds.
    static let lockTimeout = Duration.seconds(5)

    let candidate: Candidate
    let path: String
    private let descriptor: Int32
    private let identity: FileIdentity

    enum Refusal: Error {
        /// The directory does not exist. `hasPlace` says whether the user could create it.
        case missing(hasPlace: Bool)
        /// Another user's, open to others, or not a directory.
        case untrusted(String)
        case system(operation: String, errno: Int32)
    }

    /// Opens and checks the directory; with `making`, creates it if it is missing. Later operations use the descriptor, whatever the path
    /// leads to by then.
    init(_ candidate: Candidate, making: Bool) throws(Refusal) {
        PortGlobals.prepare()
        self.candidate = candidate
        path = Self.withoutEnd(candidate.path)
        // A relative path names another directory in a process with another working directory, and here after `chdir`.
        if !path.hasPrefix("/") { throw .system(operation: "using the directory \(path), which is not an absolute path", errno: EINVAL) }
        let parent = candidate.parentIsOurs ? try Self.openParent(of: path) : -1
        defer { if parent >= 0 { cplatform_close(parent) } }
        let name = candidate.parentIsOurs ? Self.lastPart(of: path) : path
        if making && cplatform_make_directory(parent, name) != 0 && errno != EEXIST {
            let code = errno
            throw code == ENOENT ? .missing(hasPlace: false) : .system(operation: "creating the directory \(path)", errno: code)
        }
        let descriptor = cplatform_open_directory(parent, name)
        if descriptor < 0 { throw Self.refusal(path, errno, hasPlace: true) }
        var status = stat()
        let isKnown = fstat(descriptor, &status) == 0
        self.descriptor = descriptor
        identity = FileIdentity(status)
        if !isKnown || status.st_uid != geteuid() || status.st_mode & 0o077 != 0 {
            // Everything is initialized by now, so deinit runs and closes the descriptor.
            throw .untrusted(
                isKnown && status.st_uid == geteuid() ? "\(path) is open to other users" : "\(path) belongs to another user")
        }
    }

    deinit { cplatform_close(descriptor) }

    /// Whether both are the same directory, whatever their paths.
    func isSame(as other: PortDirectory) -> Bool { identity == other.identity }

    /// An order of directories that is the same in every process.
    func goesBefore(_ other: PortDirectory) -> Bool {
        (identity.device, identity.inode) < (other.identity.device, other.identity.inode)
    }

    /// Opens the parent directory. It must belong to this user too: another owner could replace what is in it.
    private static func openParent(of path: String) throws(Refusal) -> Int32 {
        let parent = withoutEnd(String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)]))
        let descriptor = cplatform_open_directory(-1, parent)
        if descriptor < 0 { throw refusal(parent, errno, hasPlace: false) }
        var status = stat()
        if fstat(descriptor, &status) != 0 || status.st_uid != geteuid() || status.st_mode & 0o022 != 0 {
            cplatform_close(descriptor)
            throw .untrusted("\(parent) does not belong to this user alone")
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

    /// Removes slashes and dots from the end of a path: with them the kernel would follow a symbolic link.
    private static func withoutEnd(_ path: String) -> String {
        var path = Substring(path)
        while path.hasSuffix("/") || path.hasSuffix("/.") { path.removeLast() }  // ends: it gets shorter
        return path.isEmpty ? "/" : String(path)
    }

    private static func lastPart(of path: String) -> String { String(path[(path.lastIndex(of: "/") ?? path.startIndex)...].dropFirst()) }

    // MARK: Files

    /// The path of a file in the directory, for messages.
    func path(of file: String) -> String { path + "/" + file }

    /// The path of a file in the directory, for a socket's address. It leads through the open descriptor, so that nobody can replace the
    /// directory and a long path has room. Without /proc, and on other systems, it is the plain path; after binding, `cplatform_listen_in`
    /// checks where the file is.
    func socketPath(of file: String) -> String {
        #if os(Linux)
        // Not /proc/self, which has no descriptors when the main thread has ended (pthread_exit).
        let directory = "/proc/thread-self/fd/\(descriptor)"
        if access(directory, F_OK) == 0 { return directory + "/" + file }
        #endif
        return path(of: file)
    }

    /// The status of a file, or of a symbolic link itself; nil if there is none.
    func status(of file: String) -> stat? {
        var status = stat()
        return fstatat(descriptor, file, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status : nil
    }

    func identity(of file: String) -> FileIdentity? { status(of: file).map { FileIdentity($0) } }

    /// Binds a socket in the directory and listens. Returns the descriptor; negative with errno on failure.
    func listen(at file: String, backlog: Int32) -> Int32 { cplatform_listen_in(descriptor, file, socketPath(of: file), backlog) }

    /// See `PortRegistration.watchFile`.
    func watch(_ file: String) -> Int32 { cplatform_watch_file(socketPath(of: "."), socketPath(of: file)) }

    /// Returns zero or the errno.
    func remove(_ file: String) -> Int32 { unlinkat(descriptor, file, 0) == 0 ? 0 : errno }

    // MARK: The lock

    /// The lock of a directory, held until this object is released. Names are taken and given back only under it.
    final class Lock: Sendable {
        private let descriptor: Int32
        fileprivate init(_ descriptor: Int32) { self.descriptor = descriptor }
        deinit {
            lockDescriptors.withLock { open in
                // A child has closed it.
                guard let place = open.firstIndex(of: descriptor) else { return }
                open.remove(at: place)
                // A child of vfork shares the open file, so closing the descriptor alone would not release the lock.
                cplatform_unlock_file(descriptor)
                cplatform_close(descriptor)
            }
        }
    }

    /// The descriptors of held locks. The kernel releases a lock with the last copy of its descriptor, and a child has a copy: if the
    /// parent were killed and the child lived on, nobody would get the lock. So they are opened and closed under this lock, and a child closes
    /// all of them.
    private static let lockDescriptors = LoopLock<[Int32]>([])

    static func hold() {
        _ = lockDescriptors.lockValue()
        _ = testsOnly.lockValue()
    }

    static func release(inChild: Bool) {
        if inChild { closeLocks() }
        testsOnly.unlock()
        lockDescriptors.unlock()
    }

    /// In a child. Uses as few types of the standard library as possible: see `LoopGlobals`.
    private static func closeLocks() {
        let open = lockDescriptors.lockedValue()
        if open.pointee.count == 0 { return }
        var index = 0
        while index < open.pointee.count {  // ends: with the list
            cplatform_close(open.pointee[index])
            index += 1
        }
        open.pointee.removeAll(keepingCapacity: true)
    }

    private enum Attempt: Sendable {
        case locked(Int32)
        case isTaken
        case failed(operation: String, errno: Int32)
    }

    private func tryLock() -> Attempt {
        Self.lockDescriptors.withLock { open in
            let descriptor = cplatform_open_lock_file(self.descriptor, Self.lockName)
            if descriptor < 0 { return errno == EWOULDBLOCK ? .isTaken : .failed(operation: "opening the lock", errno: errno) }
            if cplatform_try_lock_file(descriptor) == 0 {
                open.append(descriptor)
                return .locked(descriptor)
            }
            let code = errno
            cplatform_close(descriptor)
            return code == EWOULDBLOCK ? .isTaken : .failed(operation: "locking", errno: code)
        }
    }

    /// Waits for the lock, in real time. A timeout of zero tries once or twice. The thread must not be cancelled while it has the lock.
    func lock(_ timeout: Duration = lockTimeout) throws(RunLoop.PortError) -> Lock {
        try lock(until: .now.advanced(by: timeout))
    }

    /// Waits for the lock until a deadline, in real time. One that has passed tries once.
    func lock(until deadline: RunLoop.Instant) throws(RunLoop.PortError) -> Lock {
        while true {  // ends: with the lock, an error, or the deadline
            let file = path(of: Self.lockName)
            switch tryLock() {
            case .failed(let operation, let code): throw .system(operation: "\(operation) \(file)", errno: code)
            case .isTaken: usleep(500)
            case .locked(let descriptor):
                let lock = Lock(descriptor)
                // The file may have been removed meanwhile: then another process can lock a new one.
                if let held = FileIdentity(of: descriptor), held == identity(of: Self.lockName) { return lock }
            }
            if RunLoop.Instant.now > deadline { throw .system(operation: "waiting for the lock \(file)", errno: ETIMEDOUT) }
        }
    }
}

extension PortDirectory {
    /// A directory in which ports may be.
    struct Candidate: Sendable, Equatable {
        let path: String
        /// The parent directory must belong to this user too: XDG_RUNTIME_DIR may be from another user's session.
        let parentIsOurs: Bool
    }

    // Tests must not change the environment of a process with several threads.
    private static let testsOnly = LoopLock<[Candidate]?>(nil)
    static func testsOnlyUse(_ candidates: [Candidate]?) { testsOnly.withLock { $0 = candidates } }

    /// The directories to search, in this order. A new port goes into the first usable one.
    static var candidates: [Candidate] {
        if let candidates = testsOnly.withLock({ $0 }) { return candidates }
        return candidates(named: text(of: variable), runtimeDirectory: text(of: "XDG_RUNTIME_DIR"), user: geteuid())
    }

    /// Programs of one user find each other whether or not they have XDG_RUNTIME_DIR, which cron and system units do not set: its usual
    /// directory and the fallback in /tmp are searched in any case.
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
