// Tools for the tests of named ports: a directory of their own, unique names, and a port on a running loop.

import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A directory for the sockets of the tests in this process, removed when the process ends.
let portDirectory: String = {
    let path = makeTemporaryDirectory()
    PortDirectory.testsOnlyUse([PortDirectory.Candidate(path: path, parentIsOurs: false)])
    directoryToRemove = path
    atexit { removeFlatDirectory(directoryToRemove) }
    return path
}()

// SAFETY: written once, before `atexit` is called; read when the process ends.
nonisolated(unsafe) private var directoryToRemove = ""

private let lastName = Atomic(0)

/// A name that no other test uses.
func freshName(_ what: String = "port") -> String {
    _ = portDirectory
    return "\(what).\(getpid()).\(lastName.wrappingAdd(1, ordering: .relaxed).newValue)"
}

typealias PortHandler = @Sendable (RunLoop.LocalMessagePort, Int32, [UInt8]) -> [UInt8]?

/// A port that a thread of its own serves.
final class ServedPort: Sendable {
    let name: String
    let port: RunLoop.LocalMessagePort
    let running: RunningLoop

    init(_ name: String = freshName(), mode: RunLoop.Mode = .default, handler: @escaping PortHandler) throws {
        self.name = name
        let port = try RunLoop.LocalMessagePort(name: name, handler: handler)
        self.port = port
        running = RunningLoop(mode: mode) { $0.add(port, forMode: mode) }
    }

    func end() throws {
        port.invalidate()
        try running.end()
    }
}

extension RunLoop.RemoteMessagePort {
    /// Sends a request with generous timeouts and returns the reply.
    func ask(_ id: Int32 = 1, _ text: String = "") throws(RunLoop.PortError) -> String? {
        try request(id: id, data: Array(text.utf8), sendTimeout: patience, replyTimeout: patience)
            .map { String(decoding: $0, as: UTF8.self) }
    }
}

func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

/// Runs `body` while the process has only `free` unused descriptors. For a test in a separate process.
func withoutFreeDescriptors<R>(but free: Int = 0, _ body: () -> R) -> R {
    var limit = rlimit()
    getrlimit(resourceOfDescriptors, &limit)
    limit.rlim_cur = min(limit.rlim_cur, 256)
    setrlimit(resourceOfDescriptors, &limit)
    var used: [Int32] = []
    while case let descriptor = fcntl(0, F_DUPFD_CLOEXEC, 0), descriptor >= 0 { used.append(descriptor) }  // ends: at the limit
    for descriptor in used.suffix(free) { close(descriptor) }
    used.removeLast(min(free, used.count))
    defer { for descriptor in used { close(descriptor) } }
    return body()
}

#if canImport(Glibc)
private let resourceOfDescriptors = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
#else
private let resourceOfDescriptors = RLIMIT_NOFILE
#endif
