// The code of docs/kernel-sources.md that starts a child process, compiled and run. The rest of the page is in DocumentedKernelSources.swift.

#if canImport(Glibc)

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Glibc
import Synchronization
import Testing

/// Starts a program, with its standard output as a stream. The words are its path and its arguments.
func start(_ words: [String], on loop: RunLoop) throws -> (child: pid_t, output: ByteStream) {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw RunLoop.SourceError.system(operation: "pipe", errno: errno) }
    // At the end of this function only the child has the end for writing.
    defer { close(ends[1]) }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    let output = try ByteStream(adopting: ends[0], on: loop)

    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)  // the copy is not close-on-exec
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var noSignals = sigset_t()
    sigemptyset(&noSignals)
    posix_spawnattr_setsigmask(&attributes, &noSignals)  // blocked signals; the default is those of this thread
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var child = pid_t()
    let code = posix_spawn(&child, words[0], &actions, &attributes, &arguments, environ)
    guard code == 0 else { throw RunLoop.SourceError.system(operation: "posix_spawn \(words[0])", errno: code) }
    return (child, output)
}

/// A child in a process group of its own, with its three pipes.
struct ChildProcess: Sendable {
    var pid: pid_t
    var input: ByteStream
    var output: ByteStream
    var errors: ByteStream
}

/// Starts a program. The words are its path and its arguments.
func startChild(_ words: [String], on loop: RunLoop) throws -> ChildProcess {
    var (ours, theirs): ([ByteStream], [Int32]) = ([], [])
    // At the end of this function only the child has its ends.
    defer { for end in theirs { close(end) } }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw RunLoop.SourceError.system(operation: "pipe", errno: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        if number == STDIN_FILENO { ends.swapAt(0, 1) }
        theirs.append(ends[1])
        ours.append(try ByteStream(adopting: ends[0], on: loop))
        posix_spawn_file_actions_adddup2(&actions, ends[1], number)
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    // Blocked and ignored signals would be inherited.
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    sigfillset(&signals)
    posix_spawnattr_setsigdefault(&attributes, &signals)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var pid = pid_t()
    let code = posix_spawn(&pid, words[0], &actions, &attributes, &arguments, environ)
    guard code == 0 else { throw RunLoop.SourceError.system(operation: "posix_spawn \(words[0])", errno: code) }
    return ChildProcess(pid: pid, input: ours[0], output: ours[1], errors: ours[2])
}

/// Waits for the end of a child, and reaps it, whatever happens. Its group gets SIGTERM after `limit`, and SIGKILL `grace` later.
final class ChildWait: Sendable {
    private let pid: pid_t
    private let loop: RunLoop
    private let terminate: RunLoop.Timer
    private let finish: RunLoop.Timer
    private let waiter = Mutex<CheckedContinuation<RunLoop.ExitStatus, any Error>?>(nil)

    init(of pid: pid_t, limit: Duration, grace: Duration, on loop: RunLoop) {
        let finish = RunLoop.Timer(fireAt: .distantFuture) { _ in kill(-pid, SIGKILL) }
        terminate = RunLoop.Timer(after: limit) { _ in
            kill(-pid, SIGTERM)
            finish.nextFire = loop.clock.now.advanced(by: grace)
        }
        (self.pid, self.loop, self.finish) = (pid, loop, finish)
    }

    /// Has the limit pass now. Any thread.
    func terminateNow() { terminate.nextFire = loop.clock.now }

    /// If the task is cancelled, the limit passes at once.
    func status() async throws -> RunLoop.ExitStatus {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                waiter.withLock { $0 = continuation }
                watch()
            }
        } onCancel: {
            terminateNow()
        }
    }

    private func watch() {
        do {
            for timer in [terminate, finish] { loop.add(timer) }
            // From then on the number may be another process's. The timers are on the same thread, so neither fires in between.
            let source = try RunLoop.ProcessSource(pid: pid) { _, status in self.end(.success(status)) }
            // The loop has ended before the child, or other code has reaped it.
            source.onInvalidation { source in self.end(.failure(source.failure ?? RunLoopEnded())) }
            loop.add(source)
        } catch {
            end(.failure(error))
        }
    }

    private func end(_ result: Result<RunLoop.ExitStatus, any Error>) {
        for timer in [terminate, finish] { timer.invalidate() }
        guard let waiter = waiter.withLock({ $0.take() }) else { return }
        defer { waiter.resume(with: result) }
        if case .failure(RunLoop.SourceError.badProcess) = result { return }
        // What the child has started, with its copies of the pipes, ends with the child.
        kill(-pid, SIGKILL)
        // Nobody watches the child any more.
        if case .failure = result { waitpid(pid, nil, 0) }
    }
}

/// Runs a program to its end. Returns how it ended, and what it wrote to its two outputs.
func runChild(
    _ words: [String], input: [UInt8] = [], limit: Duration, grace: Duration = .seconds(5), on loop: RunLoop
) async throws -> (status: RunLoop.ExitStatus, output: [UInt8], errors: [UInt8]) {
    let child = try startChild(words, on: loop)
    let end = ChildWait(of: child.pid, limit: limit, grace: grace, on: loop)
    async let status = end.status()
    // All three at once: a child that waits for one of its pipes does not read or write another.
    async let output = everything(from: child.output)
    async let errors = everything(from: child.errors)
    // A child need not read its input.
    try? await child.input.write(input)
    child.input.closeAfterWriting()
    return try await (status, output, errors)
}

func everything(from stream: ByteStream, atMost limit: Int = 1 << 20) async throws -> [UInt8] {
    var all: [UInt8] = []
    while let bytes = try await stream.read() {
        // Keeps reading, so that the child does not block.
        all += bytes.prefix(limit - all.count)
    }
    return all
}

private func countLines(of files: [String], on loop: RunLoop, _ report: @escaping @Sendable ([UInt8]) -> Void) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
        for (number, file) in files.enumerated() {
            if number >= 4 { try await group.next() }  // at most four at a time
            group.addTask { report(try await runChild(["/usr/bin/wc", "-l", file], limit: .seconds(60), on: loop).output) }
        }
        try await group.waitForAll()
    }
}

private func runScript(on loop: RunLoop, _ report: (String) -> Void) async throws {
    let (child, output) = try start(["/bin/sh", "-c", "echo one; echo two; exit 3"], on: loop)
    for try await line in output.lines() { report(line) }
    switch try await loop.exitStatus(of: child) {
    case .exited(let code): report("ended with \(code)")
    case .signaled(let signal, _): report("killed by signal \(signal)")
    }
}

@Suite(.timeLimit(.minutes(2))) struct DocumentedChildProcesses {
    @Test func `what a child prints is received, and then its exit status`() async throws {
        let thread = try RunLoopThread(name: "children")
        let loop = thread.runLoop
        let said = try await Task(executorPreference: loop) {
            var said: [String] = []
            try await runScript(on: loop) { said.append($0) }
            return said
        }.value
        #expect(said == ["one", "two", "ended with 3"])
        thread.stop()
        #expect(await thread.join(timeout: patience))
    }

    @Test func `a signal ends a child that a thread with blocked signals has started`() async throws {
        let thread = try RunLoopThread(name: "children")
        let loop = thread.runLoop
        let (child, output) = try plainThread {
            var signals = sigset_t()
            sigfillset(&signals)
            pthread_sigmask(SIG_BLOCK, &signals, nil)
            return try start(["/bin/sh", "-c", "kill -TERM $$; exit 3"], on: loop)
        }.join()
        #expect(try await output.read() == nil)
        #expect(try await loop.exitStatus(of: child) == .signaled(signal: SIGTERM, coreDumped: false))
        thread.stop()
        #expect(await thread.join(timeout: patience))
    }

    @Test func `a program that does not exist is an error`() throws {
        try onFreshThread { loop in
            #expect(throws: RunLoop.SourceError.system(operation: "posix_spawn /nowhere", errno: ENOENT)) {
                _ = try start(["/nowhere"], on: loop)
            }
        }
    }

    @Test func `a child goes on when its loop ends`() async throws {
        let thread = try RunLoopThread(name: "children")
        let loop = thread.runLoop
        let child = Child.untilKilled()
        let status = Task { try await loop.exitStatus(of: child.pid) }
        try await suspendUntil("the task waits") { loop.debugDescription.contains("a task waits") }
        thread.stop()
        #expect(await thread.join(timeout: patience))
        await #expect(throws: RunLoopEnded.self) { try await status.value }
        // It was alive until now, and nobody has reaped it.
        child.kill(SIGTERM)
        #expect(waitForEnd(of: child.pid) == SIGTERM)
    }

    // MARK: By hand

    /// Calls `body` with the loop of a thread, which then ends.
    private func withLoop<R: Sendable>(_ body: @escaping @Sendable (RunLoop) async throws -> R) async throws -> R {
        let thread = try RunLoopThread(name: "children")
        let result = await Task(executorPreference: thread.runLoop) { try await body(thread.runLoop) }.result
        thread.stop()
        #expect(await thread.join(timeout: patience))
        return try result.get()
    }

    private func isReaped(_ pid: pid_t) -> Bool { waitpid(pid, nil, WNOHANG) == -1 && errno == ECHILD }

    @Test func `a child has three pipes, which may all be full at once`() async throws {
        let size = 300_000
        let result = try await withLoop { loop in
            try await runChild(
                ["/bin/sh", "-c", "cat; echo done >&2; exit 3"], input: [UInt8](repeating: 7, count: size), limit: patience, on: loop)
        }
        #expect(result.status == .exited(3))
        #expect(result.output.count == size && result.output.allSatisfy { $0 == 7 })
        #expect(String(decoding: result.errors, as: UTF8.self) == "done\n")
    }

    @Test func `a child that does not read its input, and one that does not exist`() async throws {
        try await withLoop { loop in
            let result = try await runChild(
                ["/bin/sh", "-c", "exit 0"], input: [UInt8](repeating: 7, count: 300_000), limit: patience, on: loop)
            #expect(result.status == .exited(0))
            await #expect(throws: RunLoop.SourceError.self) { _ = try await runChild(["/nowhere"], limit: patience, on: loop) }
        }
    }

    @Test func `a child that takes too long is terminated, with all that it has started`() async throws {
        let result = try await withLoop { loop in
            try await runChild(["/bin/sh", "-c", "sleep 1000 & sleep 1000"], limit: .milliseconds(50), on: loop)
        }
        // The pipes have ended, so no copy of them is left.
        #expect(result.status == .signaled(signal: SIGTERM, coreDumped: false) && result.output.isEmpty)
    }

    @Test func `a child that ignores SIGTERM is killed after the grace period, and is no zombie`() async throws {
        try await withLoop { loop in
            let child = try startChild(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], on: loop)
            let end = ChildWait(of: child.pid, limit: patience, grace: .milliseconds(50), on: loop)
            async let status = end.status()
            #expect(try await child.output.read(exactly: 3) == Array("up\n".utf8))
            end.terminateNow()
            #expect(try await status == .signaled(signal: SIGKILL, coreDumped: false))
            #expect(isReaped(child.pid))
            #expect(try await child.output.read() == nil)
        }
    }

    @Test func `a cancelled task ends its child`() async throws {
        try await withLoop { loop in
            let child = try startChild(["/bin/sh", "-c", "sleep 1000"], on: loop)
            let task = Task(executorPreference: loop) {
                try await ChildWait(of: child.pid, limit: patience, grace: patience, on: loop).status()
            }
            task.cancel()
            #expect(try await task.value == .signaled(signal: SIGTERM, coreDumped: false))
            #expect(isReaped(child.pid))
        }
    }

    @Test func `a child does not outlive the loop that watches it`() async throws {
        let thread = try RunLoopThread(name: "children")
        let loop = thread.runLoop
        let child = try startChild(["/bin/sh", "-c", "sleep 1000"], on: loop)
        let task = Task { try await ChildWait(of: child.pid, limit: patience, grace: patience, on: loop).status() }
        try await suspendUntil("the child is watched") { loop.debugDescription.contains("process \(child.pid)") }
        thread.stop()
        #expect(await thread.join(timeout: patience))
        await #expect(throws: RunLoopEnded.self) { try await task.value }
        #expect(isReaped(child.pid))
    }

    @Test func `only so many children run at a time`() async throws {
        let counts = Box(0)
        try await withLoop { loop in
            try await countLines(of: [String](repeating: "/dev/null", count: 9), on: loop) { output in
                if String(decoding: output, as: UTF8.self).hasPrefix("0 ") { counts.increment() }
            }
        }
        #expect(counts.value == 9)
    }
}

#endif
