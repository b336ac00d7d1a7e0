// The entry point: options in, exit code out. Conductor.swift has the drive in order, ServeCommand.swift the server, ControlCommand.swift
// its control.
//
// It contains only a call: top-level code, and the `main()` of an `@main` type, is isolated to the main actor,
// and so is a closure in it. As a handler, such a closure would trap when another thread calls it.

@main
struct Demo {
    static func main() {
        do throws(DemoError) {
            switch try Command.parse(CommandLine.arguments.dropFirst()) {
            case .help:
                let terminal = Terminal()
                terminal.line(Command.usage)
                terminal.flush()
            case .drive(let options):
                try Conductor(options: options, terminal: Terminal()).perform()
            case .serve(let options):
                try ServeCommand(options: options, terminal: Terminal()).perform()
            case .control(let options):
                try ControlCommand(options: options, terminal: Terminal()).perform()
            }
        } catch {
            Terminal.complain(error.sentence)
            Process.end(code: error.code)
        }
    }
}

/// An early end of the demo: a message for the terminal, and the exit code.
struct DemoError: Error {
    var sentence: String
    var code: Int32 = 1

    static func usage(_ sentence: String) -> DemoError { DemoError(sentence: sentence, code: 2) }
}
