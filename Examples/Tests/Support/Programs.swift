// Programs that the tests start: wrk and redis-server.

public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The path of an installed program.
public func programPath(_ name: String) throws -> String {
    let folders = getenv("PATH").map { String(cString: $0) }?.split(separator: ":") ?? []
    let paths = folders.map { "\($0)/\(name)" }
    return try #require(paths.first { access($0, X_OK) == 0 }, "\(name) is missing; Scripts/install-libraries installs it")
}

/// The path of a program of this package, which is built into the folder of the tests.
public func builtProgramPath(_ name: String) throws -> String {
    let program = builtProgram(name)
    try #require(access(program, X_OK) == 0, "\(program) is missing; `swift build --package-path Examples` builds it")
    return program
}

/// Runs a program that ends by itself, and returns what it printed.
public func output(of program: String, _ arguments: [String], _ location: SourceLocation = #_sourceLocation) throws -> String {
    let folder = makeTemporaryDirectory()
    defer { removeFlatDirectory(folder) }
    let file = folder + "/output"
    // The shell's `exec` leaves one process, which the bound of the wait can kill.
    let words = [try programPath(program)] + arguments
    let pid = spawnChild("/bin/sh", ["-c", "exec " + words.map { "'\($0)'" }.joined(separator: " ") + " >'\(file)' 2>&1"])
    let status = waitForEnd(of: pid, location)
    let text = try contents(of: file)
    try #require(status == 0, "\(program) ended with status \(status as Any): \(text)", sourceLocation: location)
    return text
}

private func contents(of file: String) throws -> String {
    let descriptor = open(file, O_RDONLY)
    guard descriptor >= 0 else { throw SystemFailure("open \(file)") }
    defer { close(descriptor) }
    return drain(descriptor)
}

/// A redis-server of one test, on a Unix socket in a folder of its own. It keeps nothing on disk.
public final class RedisServer: Sendable {
    private let folder = makeTemporaryDirectory()
    private let child = Box<Child?>(nil)
    public var socketPath: String { folder + "/redis" }

    public init() throws {
        ignoreBrokenPipes()
        try start()
    }

    deinit {
        child.value = nil
        removeFlatDirectory(folder)
    }

    /// Returns when the server accepts connections.
    public func start() throws {
        let words = [
            "--port", "0", "--unixsocket", socketPath, "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", folder,
            "--loglevel", "warning",
        ]
        // The server does not read its input. The second process does, and so kills the server if this process ends without doing so.
        let command = "exec 3<&0; (read -r line <&3; kill -9 $$) & exec \"$0\" \"$@\" 3<&-"
        let child = Child("/bin/sh", ["-c", command, try programPath("redis-server")] + words, ownsInput: true)
        self.child.value = child
        try waitUntil("redis-server accepts connections", within: libraryPatience) { canConnect(socketPath) }
    }

    /// SIGKILL: the server says nothing to its clients; the kernel closes the connections.
    public func kill() { child.value = nil }
}

/// Whether a server accepts connections at this path.
private func canConnect(_ path: String) -> Bool {
    let descriptor = socket(AF_UNIX, streamType, 0)
    defer { close(descriptor) }
    return withUnixAddress(path) { connect(descriptor, $0, $1) == 0 }
}
