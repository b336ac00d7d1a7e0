// Rules proved here (RunLoop+AsyncMain.swift). A separate program (Tests/AsyncMainProbe) checks each of them:
// - A program that does not adopt the main run loop behaves as it does without the library.
// - In a program that adopts it, the main actor is on the main thread after every await, inside a run of RunLoop.main.
// - A run nested in a plain handler runs main-actor code. A run nested in main-actor code does not, and no code is lost.
// - The exit code is the one of main; an error that main throws ends the program as usual.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.tags(.threads)) struct `An async main on the main run loop` {
    @Test func `a program that does not adopt the main run loop is unchanged`() throws {
        let answer = try probe("plain")
        #expect(answer.said.last == "end")
        // Dispatch decides how it runs the main actor; no run loop runs.
        #expect(answer.said.first?.hasSuffix("in a run false") == true)
        #expect(answer.status == 0)
    }

    @Test func `the main actor stays on the main thread across every await`() throws {
        #expect(try probe("adopted") == Answer(said: ["adopted true", "stays true, in a run true", "end"], status: 0))
    }

    @Test func `adopting the main run loop again returns true again`() throws {
        #expect(try probe("again") == Answer(said: ["adopted true true", "end"], status: 0))
    }

    @Test func `a run nested in a handler runs main-actor code, and a run nested in main-actor code does not`() throws {
        let said = ["adopted true", "in a nested run 2, main thread true", "stopped", "timer", "stopped", "afterwards", "end"]
        #expect(try probe("nested") == Answer(said: said, status: 0))
    }

    @Test func `an error that main throws ends the program with a nonzero exit code`() throws {
        let answer = try probe("throws")
        #expect(answer.said == ["adopted true"])
        #expect(answer.status != 0)
    }

    @Test func `the program ends with the code that it passes to exit`() throws {
        #expect(try probe("exit") == Answer(said: ["adopted true"], status: 7))
    }

    @Test func `if the program stops the main loop, the run ends and the loop runs again`() throws {
        #expect(try probe("stopped") == Answer(said: ["adopted true", "still in a run 1", "end"], status: 0))
    }

    @Test func `adopting is refused if the main actor has left the main thread`() throws {
        #expect(try probe("elsewhere") == Answer(said: ["adopted elsewhere false", "end"], status: 0))
    }
}

private struct Answer: Equatable {
    let said: [String]
    let status: Int32
}

/// Runs the probe program, which is in the same folder as the tests, and waits for its end.
///
/// This does not use Foundation's Process: the first C module that imports `sys/socket.h` owns its names, and the files of this target
/// expect that module to be Glibc.
private func probe(_ what: String) throws -> Answer {
    var output: [Int32] = [-1, -1]
    precondition(closeOnExecPipe(&output), "pipe: errno \(errno)")
    defer { close(output[0]) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO)
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
    // A crash is an expected result here, and nobody reads its backtrace, which takes seconds to make.
    let child = spawn(builtProgram("eventloop-async-main-probe"), [what], &actions, variables: ["SWIFT_BACKTRACE=enable=no"])
    close(output[1])
    defer { kill(child, SIGKILL) }
    let said = try readToEnd(output[0], "the program \(what) ends")
    let status = waitForEnd(of: child) ?? 0
    return Answer(said: said.split(separator: "\n").map(String.init), status: exitCode(ofStatus: status))
}

#endif
