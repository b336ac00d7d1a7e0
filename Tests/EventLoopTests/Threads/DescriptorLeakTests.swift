// Descriptors and threads (semantics 9.8, 9.13): ended threads leave no descriptor behind, and the wake-up descriptor lives as long as the
// RunLoop object, so that a late stop or wakeUp never writes to a descriptor that has reused its number.
//
// If the process has no free descriptor (9.14), RunLoopThread throws a typed error and RunLoop.current traps with errno.
//
// Descriptors belong to the process, so each test runs in a process of its own.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .serialized, .tags(.memory)) struct DescriptorLeakTests {
    @Test func `a thousand threads leave no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func useLoop() throws {
                try onFreshThread { loop in
                    for mode in ["default", "second"] as [RunLoop.Mode] {
                        let (pipe, mixed) = (Pipe(), SocketPair())
                        pipe.write()
                        loop.add(try readSource(pipe) { _ in pipe.readAll() }, forMode: mode)
                        // The kinds of sources that need a nested poller.
                        for trigger in [.level, .edge, .oneShot] as [RunLoop.DescriptorSource.Trigger] {
                            loop.add(
                                try RunLoop.DescriptorSource(descriptor: mixed.near, events: .closed, trigger: trigger) { _, _ in
                                    withExtendedLifetime(mixed) {}
                                }, forMode: mode)
                        }
                        loop.add(RunLoop.Timer(after: .microseconds(10)) { _ in }, forMode: mode)
                        _ = loop.run(mode: mode, for: .microseconds(100))
                    }
                }
            }
            for _ in 0..<10 { try useLoop() }
            let before = openDescriptors()
            for _ in 0..<1_000 { try useLoop() }
            #expect(openDescriptors().count < before.count + 10, "\(before) \(openDescriptors())")
        }
    }

    @Test func `a thousand RunLoopThreads leave no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func useThread() throws {
                let thread = try RunLoopThread(name: "short")
                let answer = try thread.runLoop.performAndWait { 42 }
                thread.stop()
                #expect(thread.join(timeout: patience) && answer == 42)
            }
            for _ in 0..<10 { try useThread() }
            let before = openDescriptors()
            for _ in 0..<1_000 { try useThread() }
            #expect(openDescriptors().count < before.count + 10, "\(before) \(openDescriptors())")
        }
    }

    @Test func `sources that are added to one loop and removed leave no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            let (before, after) = try inManualTime { loop, _, _ in
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                func useSources() throws {
                    let pair = SocketPair()
                    let events: [RunLoop.DescriptorSource.Events] = [.read, .closed, [.read, .closed]]
                    for trigger in [.level, .edge, .oneShot] as [RunLoop.DescriptorSource.Trigger] {
                        let sources = try events.map {
                            try RunLoop.DescriptorSource(descriptor: pair.near, events: $0, trigger: trigger) { _, _ in }
                        }
                        for source in sources { loop.add(source) }
                        _ = loop.run(for: .zero)
                        for source in sources { source.invalidate() }
                        _ = loop.run(for: .zero)
                    }
                }
                for _ in 0..<5 { try useSources() }
                let before = openDescriptors()
                for _ in 0..<200 { try useSources() }
                return (before, openDescriptors())
            }
            #expect(after.count < before.count + 10, "\(after) \(before)")
        }
    }

    @Test func `a retained loop keeps its wake-up descriptor open after its thread has ended`() async {
        await #expect(processExitsWith: .success) {
            let loops = try (0..<20).map { _ in
                try onFreshThread { loop in
                    let alive = loop.keepAlive()
                    defer { alive.cancel() }
                    _ = loop.run(for: .zero)
                    return loop
                }
            }
            // If the ended loops had closed their descriptors, these pipes would reuse the numbers.
            let pipes = (0..<100).map { _ in Pipe() }
            for loop in loops {
                loop.wakeUp()
                loop.stop()
                loop.stop(sticky: true)
            }
            #expect(pipes.map { $0.readAll() } == Array(repeating: "", count: 100))
        }
    }

    // MARK: No free descriptor

    @Test func `without a free descriptor, init throws a typed error and RunLoop current traps with errno`() async throws {
        // The limit is lowered for as short as possible: Dispatch counts its threads in /proc once a second, and ends the process if it
        // cannot open a file.
        await #expect(processExitsWith: .success) {
            try warmUp()
            let outcome = Result<RunLoopThread, any Error> {
                useUpDescriptors()
                defer { allowDescriptorsAgain() }
                return try RunLoopThread(name: "none left")
            }
            switch outcome {
            case .success(let thread):
                thread.stop()
                Issue.record("made without a descriptor")
            case .failure(RunLoop.SourceError.system(_, let code)): #expect(code == EMFILE)
            case .failure(let error): Issue.record("\(error)")
            }
        }
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try warmUp()
            try plainThread {
                useUpDescriptors()
                // This loop takes the wake channel that the process keeps in reserve.
                _ = RunLoop.current
                try plainThread { _ = RunLoop.current }.join()
            }.join()
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("errno") || errors.contains("\(EMFILE)") || errors.contains("Too many open files"), "\(errors)")
    }

    @Test func `a thread whose setup throws leaves no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            _ = await (try RunLoopThread(name: "warm")).join(timeout: .zero)
            let before = openDescriptors()
            for _ in 0..<100 {
                #expect(throws: Refused.self) { try RunLoopThread(name: "refused", setup: { _ in throw Refused() }) }
            }
            #expect(openDescriptors().count < before.count + 10, "\(before) \(openDescriptors())")
        }
    }
}

private struct Refused: Error {}

/// Uses the library once, so that the test measures no descriptor that only the first use opens.
private func warmUp() throws {
    let thread = try RunLoopThread(name: "warm")
    thread.stop()
    #expect(thread.join(timeout: patience))
    try plainThread { _ = RunLoop.current }.join()
}

/// From here on, this process cannot open a descriptor.
private func useUpDescriptors() { limitDescriptors { $0.rlim_cur = 0 } }

private func allowDescriptorsAgain() { limitDescriptors { $0.rlim_cur = $0.rlim_max } }

private func limitDescriptors(_ change: (inout rlimit) -> Void) {
    var limit = rlimit()
    #if canImport(Glibc)
    let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #else
    let resource = RLIMIT_NOFILE
    #endif
    precondition(getrlimit(resource, &limit) == 0)
    change(&limit)
    precondition(setrlimit(resource, &limit) == 0)
}

/// The open descriptors of this process, one word for each. A leak grows with every round. One or two descriptors may come and go with the
/// threads that run tests, because their monitor has a timer of its own.
func openDescriptors() -> [String] {
    (0..<Int32(1024)).filter { fcntl($0, F_GETFD) >= 0 }.map { descriptor in
        #if os(Linux)
        var name = [CChar](repeating: 0, count: 256)
        readlink("/proc/self/fd/\(descriptor)", &name, name.count - 1)
        return "\(descriptor):\(String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self))"
        #else
        return "\(descriptor)"
        #endif
    }
}
