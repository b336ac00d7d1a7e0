// Rules proved here, for the example modal-program:
// - While a question is open, only its own items are served. What the default mode has missed comes afterwards, in order.
// - The answer's `stop` ends the nested run and not the outer one.
// - The outer run goes on after a question that nobody has answered.
// - A line that was typed early answers the next question. Without an input, the program ends.

#if os(Linux)

import Glibc
import TestSupport
import Testing

/// A running program with its input and output.
private final class Dialogue {
    private let program: ExampleProgram
    private let output: Peer
    private var input: Peer?

    init(_ folder: String, seconds: Int = 3_600) throws {
        input = try makeInput(folder + "/input")
        output = try makeOutput(folder + "/output")
        program = try ExampleProgram("modal-program", ["\(seconds)"], input: folder + "/input", output: folder + "/output")
        #expect(try line() == "press Ctrl-C")
    }

    func line(_ location: SourceLocation = #_sourceLocation) throws -> String? { try output.line(location) }
    func type(_ text: String) throws { try #require(input).writeToPipe(text) }
    func endInput() { input = nil }
    func interrupt() { program.interrupt() }

    /// The lines before one that begins so.
    @discardableResult
    func lines(until last: String, _ location: SourceLocation = #_sourceLocation) throws -> [String] {
        var lines: [String] = []
        while true {  // ends: with the line, or with the program
            let line = try #require(try line(location), "the output ends before: \(last)", sourceLocation: location)
            if line.hasPrefix(last) { return lines }
            lines.append(line)
        }
    }

    /// The program ends, and has nothing more to say.
    func expectEnd(_ location: SourceLocation = #_sourceLocation) throws {
        #expect(try line(location) == "the outer run was stopped", sourceLocation: location)
        #expect(try line(location) == nil, sourceLocation: location)
        #expect(program.status(location) == 0, sourceLocation: location)
    }
}

private let question = "End the program? (yes or no)"

/// The numbers of the worker's results in these lines.
private func results(in lines: [String]) -> [Int] { lines.compactMap { $0.hasPrefix("result ") ? Int($0.dropFirst(7)) : nil } }

@Suite struct ModalProgramTests {
    @Test func `what is held back while the question is open comes afterwards, in order`() throws {
        try withFolder { folder in
            let dialogue = try Dialogue(folder)
            let before = try dialogue.lines(until: "clock: ")
            dialogue.interrupt()
            let seen = results(in: before + (try dialogue.lines(until: question))).count
            // Only the question's own timer is heard, until it has seen enough.
            var heldBack = 0
            while heldBack < 4 {  // ends: the worker goes on
                let words = try #require(try dialogue.line()).split(separator: " ")
                #expect(words.first == "(waiting", "\(words)")
                heldBack = words.dropLast().last.flatMap { Int($0) } ?? 0
            }
            try dialogue.type("no\n")
            let meanwhile = try dialogue.lines(until: "the answer is no")
            #expect(meanwhile.allSatisfy { $0.hasPrefix("(waiting") }, "\(meanwhile)")
            // The outer run goes on: the stop was the nested run's.
            var after: [String] = []
            while results(in: after).count < heldBack + 2 { after.append(try #require(try dialogue.line())) }  // ends: the worker goes on
            #expect(results(in: after) == Array(seen + 1...seen + heldBack + 2))
            dialogue.interrupt()
            try dialogue.lines(until: question)
            try dialogue.type("yes\n")
            try dialogue.lines(until: "the answer is yes")
            try dialogue.expectEnd()
        }
    }

    @Test func `a second Ctrl-C during the question asks again afterwards`() throws {
        try withFolder { folder in
            let dialogue = try Dialogue(folder)
            dialogue.interrupt()
            try dialogue.lines(until: question)
            dialogue.interrupt()
            try dialogue.type("no\n")
            let meanwhile = try dialogue.lines(until: "the answer is no")
            #expect(!meanwhile.contains(question))
            try dialogue.lines(until: question)
            try dialogue.type("yes\n")
            try dialogue.lines(until: "the answer is yes")
            try dialogue.expectEnd()
        }
    }

    @Test func `lines that were typed early answer one question each`() throws {
        try withFolder { folder in
            let dialogue = try Dialogue(folder)
            try dialogue.type("perhaps\nyes\n")
            for answer in ["perhaps", "yes"] {
                dialogue.interrupt()
                try dialogue.lines(until: question)
                #expect(try dialogue.line() == "the answer is \(answer)")
            }
            try dialogue.expectEnd()
        }
    }

    @Test func `without an answer the nested run times out, and the outer one goes on`() throws {
        try withFolder { folder in
            let dialogue = try Dialogue(folder, seconds: 1)
            dialogue.interrupt()
            try dialogue.lines(until: question)
            let meanwhile = try dialogue.lines(until: "no answer")
            #expect(meanwhile.allSatisfy { $0.hasPrefix("(waiting") }, "\(meanwhile)")
            try dialogue.lines(until: "clock: ")
            // Nobody can answer any more.
            dialogue.endInput()
            dialogue.interrupt()
            try dialogue.lines(until: question)
            #expect(try dialogue.line() == "no answer")
            try dialogue.expectEnd()
        }
    }

    @Test func `an input that cannot be watched is refused`() throws {
        try withFolder { folder in
            let program = try ExampleProgram("modal-program", [], output: folder + "/output")
            #expect(program.status() == 0)
            #expect(try text(of: folder + "/output") == "the standard input has to be a terminal or a pipe\n")
        }
    }
}

#endif
