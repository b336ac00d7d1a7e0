// Rules proved here, for the example job-runner:
// - A file that is closed after writing, or moved into the folder, is run, and one line says how it ended.
// - At most so many jobs run at a time; the others follow in the order in which they were written.
// - A job that takes too long is killed, with everything that it has started.
// - Every child is reaped, and no descriptor is left open.
// - SIGTERM lets the running jobs finish, starts no other, and ends the program with code 0. So does removing the folder.

#if os(Linux)

import Glibc
import TestSupport
import Testing

/// A job-runner with a folder to watch. Its jobs may wait at a gate.
private final class Runner {
    private let jobs: String
    private let program: ExampleProgram
    private let output: Peer
    private let (gate, closedGate): (Peer, Peer)
    /// A line of a script that waits until the test has let it through.
    let wait: String
    /// One that waits until the test is over. Not at the same gate: a process that is being killed may still take what is for another.
    let waitInVain: String

    init(_ jobs: String, _ outside: String, limit: Int = 2, seconds: Int = 3_600) throws {
        self.jobs = jobs
        wait = "read -r _ <'\(outside)/gate'"
        waitInVain = "read -r _ <'\(outside)/closed-gate'"
        (gate, closedGate) = (try makeInput(outside + "/gate"), try makeInput(outside + "/closed-gate"))
        output = try makeOutput(outside + "/output")
        program = try ExampleProgram("job-runner", [jobs, "\(limit)", "\(seconds)"], output: outside + "/output")
        #expect(try output.line() == "watching \(jobs)")
    }

    func write(_ name: String, _ script: String) throws { try ProgramTests.write(script + "\n", to: jobs + "/" + name) }
    func rename(_ name: String, _ newName: String) throws { try #require(Glibc.rename(jobs + "/" + name, jobs + "/" + newName) == 0) }
    func line(_ location: SourceLocation = #_sourceLocation) throws -> String? { try output.line(location) }
    func letThrough() throws { try gate.writeToPipe("\n") }
    func end() { program.end() }
    func status(_ location: SourceLocation = #_sourceLocation) -> Int32? { program.status(location) }

    /// Sleeps: it has served all events that came before the call.
    func waitUntilAsleep(_ location: SourceLocation = #_sourceLocation) throws {
        try waitUntil("the job-runner sleeps", location) {
            try text(of: "/proc/\(program.pid)/stat").split(separator: ")").last?.hasPrefix(" S") == true
        }
    }

    /// Zombies included.
    func children() throws -> Int { try text(of: "/proc/\(program.pid)/task/\(program.pid)/children").split(separator: " ").count }
    func descriptors() -> Int { filesIn("/proc/\(program.pid)/fd").count }
}

@Suite struct JobRunnerTests {
    private func withRunner(limit: Int = 2, seconds: Int = 3_600, _ body: (Runner) throws -> Void) throws {
        try withFolder { jobs in try withFolder { try body(try Runner(jobs, $0, limit: limit, seconds: seconds)) } }
    }

    @Test func `a file that is complete is run, and a line says how it ended`() throws {
        try withRunner { runner in
            try runner.write(".hidden", "echo now it is a job; exit 4")
            for (name, script, end) in [
                ("good", "exit 0", "exited with 0"), ("bad", "exit 3", "exited with 3"), ("a b", "no-such-program 2>&-", "exited with 127"),
                ("-x", "kill -TERM $$", "killed by signal 15"), ("good", "read -r line || exit 7", "exited with 7"),
            ] {
                try runner.write(name, script)
                #expect(try runner.line() == "\(name): \(end)")
            }
            try runner.rename(".hidden", "complete")
            #expect(try runner.line() == "now it is a job")
            #expect(try runner.line() == "complete: exited with 4")
            runner.end()
            #expect(try runner.line() == "ending after 0 running jobs")
            #expect(runner.status() == 0)
        }
    }

    @Test func `at most so many jobs run at a time, and the others follow in their order`() throws {
        try withRunner { runner in
            let names = ["a", "b", "c", "d", "e"]
            for name in names { try runner.write(name, "echo \(name) runs; \(runner.wait)") }
            #expect(Set([try runner.line(), try runner.line()]) == ["a runs", "b runs"])
            try runner.waitUntilAsleep()
            #expect(try runner.children() == 2)
            for next in names.dropFirst(2) {
                try runner.letThrough()
                #expect(try #require(try runner.line()).hasSuffix(": exited with 0"))
                #expect(try runner.line() == "\(next) runs")
                #expect(try runner.children() <= 2)
            }
            for _ in 0..<2 {
                try runner.letThrough()
                #expect(try #require(try runner.line()).hasSuffix(": exited with 0"))
            }
        }
    }

    @Test func `a job that takes too long is killed, with everything that it has started`() throws {
        // Long enough for the first job to end in time on a busy machine.
        try withRunner(seconds: 5) { runner in
            try runner.write("quick", "(\(runner.wait); echo it goes on) & exit 0")
            #expect(try runner.line() == "quick: exited with 0")
            try runner.write("slow", "(\(runner.waitInVain)) & echo it runs; wait")
            #expect(try runner.line() == "it runs")
            #expect(try runner.line() == "slow: killed by signal 9")
            // The limit of the quick job has passed, too. It concerns nobody any more, not even what that job has left behind.
            try runner.letThrough()
            #expect(try runner.line() == "it goes on")
            runner.end()
            #expect(try runner.line() == "ending after 0 running jobs")
            // The end of the output: the process that the job has started has it open as long as it lives.
            #expect(try runner.line() == nil)
            #expect(runner.status() == 0)
        }
    }

    @Test func `every child is reaped, and no descriptor is left`() throws {
        try withRunner { runner in
            try runner.write("first", "exit 0")
            #expect(try runner.line() == "first: exited with 0")
            try runner.waitUntilAsleep()
            let before = runner.descriptors()
            for number in 0..<40 { try runner.write("job \(number)", number % 2 == 0 ? "exit 1" : "kill -9 $$") }
            var ended: Set<String> = []
            for _ in 0..<40 { ended.insert(String(try #require(try runner.line()).prefix { $0 != ":" })) }
            #expect(ended == Set((0..<40).map { "job \($0)" }))
            try runner.waitUntilAsleep()
            #expect(try runner.children() == 0)
            #expect(runner.descriptors() == before)
        }
    }

    @Test func `SIGTERM lets the running job finish, and starts no other`() throws {
        try withRunner(limit: 1) { runner in
            try runner.write("a", "echo a runs; \(runner.wait); exit 5")
            #expect(try runner.line() == "a runs")
            try runner.write("b", "echo b runs")
            try runner.waitUntilAsleep()
            runner.end()
            #expect(try runner.line() == "b: not started: the runner ends")
            #expect(try runner.line() == "ending after 1 running jobs")
            try runner.write("c", "echo c runs")
            try runner.letThrough()
            #expect(try runner.line() == "a: exited with 5")
            #expect(try runner.line() == nil)
            #expect(runner.status() == 0)
        }
    }

    @Test func `the runner ends when its folder is removed`() throws {
        try withFolder { outside in
            let jobs = makeTemporaryDirectory(in: "/tmp")
            let runner = try Runner(jobs, outside)
            removeFlatDirectory(jobs)
            #expect(try runner.line() == "ending after 0 running jobs")
            #expect(runner.status() == 0)
        }
    }

    @Test func `a folder that does not exist is an error`() throws {
        try withFolder { folder in
            let program = try ExampleProgram("job-runner", [folder + "/missing"], output: folder + "/output")
            #expect(program.status() == 1 << 8)
            #expect(try text(of: folder + "/output").contains("ENOENT"))
        }
    }
}

#endif
