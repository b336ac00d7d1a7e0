// The entry point: options in, exit code out. What happens in between is in Conductor.swift, in order.
//
// Nothing here but a call: top-level code, and the `main()` of an `@main` type as well, is isolated to the
// main actor, and so is a closure written in it. As a handler it would trap on the first other thread that
// calls it.

@main
struct Demo {
    static func main() {
        do throws(DemoError) {
            switch try Options.parse(CommandLine.arguments.dropFirst()) {
            case .help:
                let terminal = Terminal()
                terminal.line(Options.usage)
                terminal.flush()
            case .run(let options):
                try Conductor(options: options, terminal: Terminal()).perform()
            }
        } catch {
            Terminal.complain(error.sentence)
            Process.end(code: error.code)
        }
    }
}

/// What ends the demo early: one sentence for the person at the terminal, and the exit code.
struct DemoError: Error {
    var sentence: String
    var code: Int32 = 1

    static func usage(_ sentence: String) -> DemoError { DemoError(sentence: sentence, code: 2) }
}
