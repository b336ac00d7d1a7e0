// The type of a scenario, and tools that scenarios share.

import CFaults
import EventLoop
import EventLoopMessagePorts
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

/// A test of the library that verifies its own work: it throws `Wrong` if an item was lost. It removes everything it creates, so that it
/// can run again in the same process.
struct Scenario: Sendable {
    let name: String
    /// If the library cannot throw, the process may stop with one of these sentences.
    var mayStopWith: [String] = []
    /// Another process has a port, `world.port`, that answers each request with the request's data.
    var hasPeer = false
    let body: @Sendable (World) throws -> Void

    static let all = [
        timers, civilTime, descriptors, exceptional, modal, threads, signals, sockets, streams, ports, localPorts, actors, mainLoop,
    ]

    static let noLoop = "no descriptor could be made for the run loop of this thread"
    static let noMainLoop = "no descriptor could be made for the main run loop"

    /// What cannot throw may stop, as Swift does without memory for an array.
    static let noMemory = ["a run loop's lists need", "a run loop's statistics need", "a byte stream's room for reading needs"]

    func mayStop(_ text: String) -> Bool { (mayStopWith + Self.noMemory).contains { text.contains($0) } }

    /// Creates the scenario's surroundings before any fault, and without one.
    func inItsWorld(_ body: (World) throws -> Void) throws {
        let world = World()
        defer { world.end() }
        if hasPeer { world.startPeer() }
        try body(world)
    }
}

final class World {
    let folder: String
    let port = "peer"
    private var peer: pid_t = 0

    init() {
        var template = Array("/tmp/eventloop-faults-XXXXXX".utf8CString)
        precondition(mkdtemp(&template) != nil, "mkdtemp: errno \(errno)")
        folder = String(decoding: template.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
        setenv("EVENTLOOP_PORT_DIRECTORY", folder, 1)
    }

    func startPeer() {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0, "pipe: errno \(errno)")
        peer = systemFork()
        if peer == 0 {
            close(ends[0])
            serve { _ = write(ends[1], "r", 1) }
        }
        close(ends[1])
        var byte: UInt8 = 0
        precondition(read(ends[0], &byte, 1) == 1, "the peer is not ready")
        close(ends[0])
    }

    private func serve(_ ready: () -> Void) -> Never {
        do {
            let server = try RunLoop.LocalMessagePort(name: port) { _, _, data in data }
            RunLoop.current.add(server)
            ready()
            while true { RunLoop.current.run() }  // ends: the parent kills it
        } catch {
            fatalError("the peer has no port: \(error)")
        }
    }

    func end() {
        if peer > 0 {
            kill(peer, SIGKILL)
            waitpid(peer, nil, 0)
        }
        for name in [port, "own", "socket", ".lock"] { unlink("\(folder)/\(name)") }
        rmdir(folder)
    }
}

// MARK: - Tools

final class Counter: Sendable {
    private let count = Atomic<Int>(0)
    var value: Int { count.load(ordering: .sequentiallyConsistent) }
    func increment() { count.add(1, ordering: .sequentiallyConsistent) }
}

/// Throws unless the condition holds: the error of a source that could not be watched, or `Wrong`.
func require(_ condition: Bool, _ sources: [RunLoop.Source], _ text: @autoclosure () -> String) throws {
    if condition { return }
    for source in sources { if let failure = source.failure { throw failure } }
    throw Wrong(text: text())
}

func require(_ condition: Bool, _ text: @autoclosure () -> String) throws { try require(condition, [], text()) }

/// Longer than any event takes, unless it is lost.
let patience = Duration.seconds(5)

/// Runs until `condition` holds.
func run(_ loop: RunLoop, _ mode: RunLoop.Mode = .default, until condition: () -> Bool) {
    let alive = loop.keepAlive(forMode: mode)
    defer { alive.cancel() }
    let deadline = RunLoop.Instant.now.advanced(by: patience)
    while !condition() && RunLoop.Instant.now < deadline {
        _ = loop.run(mode: mode, until: min(deadline, .now.advanced(by: .milliseconds(3))), returnAfterSourceHandled: true)
    }
}

/// Runs `body` on a thread of its own, with that thread's loop.
func onThread(_ body: @escaping @Sendable (RunLoop) throws -> Void) throws {
    try startThread { try body(RunLoop.current) }.join()
}

func startThread(_ body: @escaping @Sendable () throws -> Void) throws -> Thread { try Thread(body) }

final class Thread: @unchecked Sendable {
    // SAFETY: the thread writes `error`, which is read after `join`; `handle` belongs to the caller.
    private var handle = pthread_t()
    private var error: (any Error)?
    private let body: @Sendable () throws -> Void

    fileprivate init(_ body: @escaping @Sendable () throws -> Void) throws {
        self.body = body
        let context = Unmanaged.passRetained(self).toOpaque()
        let code = pthread_create(
            &handle, nil,
            { context in
                let thread = Unmanaged<Thread>.fromOpaque(context!).takeRetainedValue()
                do { try thread.body() } catch { thread.error = error }
                return nil
            }, context)
        if code != 0 {
            Unmanaged<Thread>.fromOpaque(context).release()
            errno = code
            throw OwnCall(name: "pthread_create")
        }
    }

    func join() throws {
        pthread_join(handle, nil)
        if let error { throw error }
    }
}

/// Whether the library can create a descriptor at this moment, given the limit and the faults.
func mayMakeDescriptor() -> Bool {
    var ends: [Int32] = [-1, -1]
    if pipe(&ends) != 0 { return false }
    for end in ends { close(end) }
    return true
}

/// Two connected descriptors, closed when this object is released.
final class Ends: Sendable {
    let near, far: Int32

    init() throws {
        var ends: [Int32] = [-1, -1]
        if socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC | O_NONBLOCK, 0, &ends) != 0 { throw OwnCall(name: "socketpair") }
        (near, far) = (ends[0], ends[1])
    }

    deinit {
        close(near)
        close(far)
    }

    func fill() throws { if faults_own_write(far, "x", 1) != 1 { throw OwnCall(name: "write") } }
    /// Returns the number of bytes read.
    func empty() -> Int {
        var bytes = [UInt8](repeating: 0, count: 64)
        return max(0, faults_own_read(near, &bytes, UInt(bytes.count)))
    }
}
