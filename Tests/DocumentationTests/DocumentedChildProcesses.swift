// The code of docs/kernel-sources.md that starts a child process, compiled and run. The rest of the page is in DocumentedKernelSources.swift.

#if canImport(Glibc)

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Glibc
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
        child.kill(SIGINT)
        #expect(waitForEnd(of: child.pid) == SIGINT)
    }
}

#endif
