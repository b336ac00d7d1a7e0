// Rules proved here (docs/from-nio.md), in processes of their own, whose main thread is an event loop of NIO:
// - `@MainActor`, the main loop, NIO's tasks and channels share the main thread.
// - fork: a child that ends, or becomes another program, leaves the parent's event loop alone, and inherits none of the host's
//   descriptors.
// - `run` returns when the event loop is shut down; a signal that the program handles can do that.

import Glibc
import TestSupport
import Testing

/// A probe, and its lines so far. Released, it is killed.
private final class Probe {
    private let folder = makeTemporaryDirectory()
    private let child: Child

    init(_ part: String) throws {
        let program = try builtProgramPath("nio-main-probe")
        child = Child("/bin/sh", ["-c", "exec '\(program)' \(part) </dev/null >'\(folder)/output' 2>&1"])
    }

    deinit {
        child.kill()
        removeFlatDirectory(folder)
    }

    var lines: [String] {
        let descriptor = open(folder + "/output", O_RDONLY)
        if descriptor < 0 { return [] }
        defer { close(descriptor) }
        return drain(descriptor).split(separator: "\n").map(String.init)
    }

    func terminate() { child.kill(SIGTERM) }

    /// The lines, when the program has ended.
    func end(_ location: SourceLocation = #_sourceLocation) -> [String] {
        #expect(waitForEnd(of: child.pid, location) == 0, sourceLocation: location)
        return lines
    }
}

@Suite(.bounded) struct MainThreadTests {
    @Test func `the main actor, NIO's tasks, a timer, a C library's event and channels share the main thread`() throws {
        let turns = Array(repeating: ["event loop: true", "NIO: true"], count: 3).flatMap { $0 }
        #expect(
            try Probe("main-actor").end() == ["main loop: true, main thread: true"] + turns + [
                "C library: true", "bytes: 50000", "run returned",
            ])
    }

    @Test func `an event loop on another thread has a host when the main thread has ended`() throws {
        #expect(try Probe("main-thread-ends").end() == ["bytes: 50000"])
    }

    @Test func `a child of fork that ends leaves the parent's event loop alone`() throws {
        #expect(try Probe("fork").end() == ["child: 3", "bytes: 50000", "child: 4", "bytes: 50000", "run returned"])
    }

    @Test func `a program that a child of fork becomes inherits no descriptor but NIO's own epoll set`() throws {
        let lines = try Probe("exec").end()
        #expect(lines.filter { !$0.hasPrefix("anon_inode") } == ["child: 0", "bytes: 50000", "run returned"])
        #expect(lines.count { $0.hasPrefix("anon_inode") } <= 1 && !lines.contains("anon_inode:[eventfd]"), "\(lines)")
    }

    @Test func `a signal's handler may shut the event loop down, and run returns`() throws {
        let probe = try Probe("sigterm")
        try waitUntil("it has its handler") { probe.lines == ["ready"] }
        probe.terminate()
        #expect(probe.end() == ["ready", "signal", "run returned"])
    }
}
