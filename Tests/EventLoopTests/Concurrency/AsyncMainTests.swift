// Rules proved here (RunLoop+AsyncMain.swift), each by a program of its own (Tests/AsyncMainProbe):
// - A program that does not ask is as it was without the library.
// - One that does has its main actor on the main thread after every await, inside a run of RunLoop.main.
// - Main-actor code runs in a run nested in a plain handler, not in one nested in main-actor code, and is not lost.
// - The exit code is main's; an error that main throws ends the program as ever.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite struct `An async main on the main run loop` {
    @Test func `a program that does not ask is left alone`() throws {
        let answer = try probe("plain")
        #expect(answer.said.last == "end")
        // What Dispatch does with the main actor is its own affair; no run loop is run.
        #expect(answer.said.first?.hasSuffix("in a run false") == true)
        #expect(answer.status == 0)
    }

    @Test func `the main actor stays on the main thread across every await`() throws {
        #expect(try probe("adopted") == Answer(said: ["adopted true", "stays true, in a run true", "end"], status: 0))
    }

    @Test func `asking again is true again`() throws {
        #expect(try probe("again") == Answer(said: ["adopted true true", "end"], status: 0))
    }

    @Test func `main-actor code runs in a run nested in a handler, and waits for one nested in main-actor code`() throws {
        let said = ["adopted true", "in a nested run 2, main thread true", "stopped", "timer", "stopped", "afterwards", "end"]
        #expect(try probe("nested") == Answer(said: said, status: 0))
    }

    @Test func `an error that main throws ends the program with another code than zero`() throws {
        let answer = try probe("throws")
        #expect(answer.said == ["adopted true"])
        #expect(answer.status != 0)
    }

    @Test func `exit gives the code`() throws {
        #expect(try probe("exit") == Answer(said: ["adopted true"], status: 7))
    }

    @Test func `a stop of the main loop ends a run, and it is run again`() throws {
        #expect(try probe("stopped") == Answer(said: ["adopted true", "still in a run 1", "end"], status: 0))
    }

    @Test func `refused where the main actor has left the main thread`() throws {
        #expect(try probe("elsewhere") == Answer(said: ["adopted elsewhere false", "end"], status: 0))
    }
}

private struct Answer: Equatable {
    let said: [String]
    let status: Int32
}

/// Runs the program that stands beside the tests, and waits for its end.
///
/// Without Foundation's Process: whichever module of C brings `sys/socket.h` first owns its names, and the files of this target expect Glibc.
private func probe(_ what: String) throws -> Answer {
    var output: [Int32] = [-1, -1]
    precondition(pipe(&output) == 0, "pipe: errno \(errno)")
    for end in output { precondition(fcntl(end, F_SETFD, FD_CLOEXEC) == 0) }
    defer { close(output[0]) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO)
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
    let program = folderOfTests() + "/eventloop-async-main-probe"
    var arguments = [strdup(program), strdup(what), nil]
    // A crash is an answer here; nobody reads its backtrace, which takes seconds to make.
    var environment = [strdup("SWIFT_BACKTRACE=enable=no"), nil]
    defer { for text in arguments + environment { free(text) } }
    var child = pid_t()
    let code = posix_spawn(&child, program, &actions, nil, &arguments, &environment)
    close(output[1])
    try #require(code == 0, "\(program): errno \(code)")
    defer { kill(child, SIGKILL) }
    let said = try readToEnd(output[0], "the program \(what) ends")
    let status = waitForEnd(of: child) ?? 0
    // WIFEXITED and WEXITSTATUS are macros; a signal's number stands in the low bits.
    return Answer(said: said.split(separator: "\n").map(String.init), status: status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F)
}

private func folderOfTests() -> String {
    var path = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
    let length = readlink("/proc/self/exe", &path, path.count - 1)
    let whole = String(decoding: path[..<max(length, 0)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return whole.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
}

#endif
