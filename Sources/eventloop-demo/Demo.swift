// The entry point. Show.swift has `make run` in order, Serve.swift the server, and Control.swift its control.

import EventLoop

@main
enum Demo {
    static let usage = """
        eventloop-demo [--loops N] [--seconds N] [--timeline PATH]
            Shows run loops at work: a server on N loops, and clients that ask it for
            N seconds. Writes a page that shows what each loop did.

        eventloop-demo serve [--port N] [--loops N] [--grace SECONDS] [--name NAME]
            A server of lines: nc 127.0.0.1 8080. It answers "hello", "slow 400" after
            400 ms, and "stall 400" after it has blocked its loop for so long.

        eventloop-demo ctl status [--name NAME]
        eventloop-demo ctl stop [--name NAME] [--timeout SECONDS]
            Asks a server what its loops have done, or to end.
        """

    static func main() {
        do {
            var arguments = Arguments(CommandLine.arguments.dropFirst())
            switch arguments.takeWord() {
            case nil: try Show(&arguments).perform()
            case "serve": try Serve(&arguments).perform()
            case "ctl": try control(&arguments)
            case "help", "-h", "--help": say(usage)
            case let word?: throw Misuse("there is no command '\(word)', only serve and ctl; --help explains them")
            }
        } catch {
            complain("\(error)")
            leave(error is Misuse ? 2 : 1)
        }
    }
}

/// A wrong command line.
struct Misuse: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// Something else that ends the demo, in a sentence.
struct Failure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// Words, then options with values.
struct Arguments {
    private var rest: ArraySlice<String>
    private var options: [String: String] = [:]

    init(_ arguments: ArraySlice<String>) { rest = arguments }

    /// Nil if an option or nothing follows.
    mutating func takeWord() -> String? {
        guard let word = rest.first, !word.hasPrefix("--") || word == "--help" else { return nil }
        return rest.removeFirst()
    }

    /// Reads the options, after the words.
    mutating func readOptions(_ names: String...) throws {
        while let option = rest.popFirst() {
            guard option.hasPrefix("--"), names.contains(String(option.dropFirst(2))) else {
                throw Misuse("'\(option)' is not understood here; --help explains the commands")
            }
            guard let value = rest.popFirst() else { throw Misuse("\(option) needs a value") }
            options[String(option.dropFirst(2))] = value
        }
    }

    func text(_ name: String) -> String? { options[name] }

    func number(_ name: String, _ range: ClosedRange<Int>, default usual: Int) throws -> Int {
        guard let text = options[name] else { return usual }
        guard let number = Int(text), range.contains(number) else {
            throw Misuse("--\(name) is a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }
}
