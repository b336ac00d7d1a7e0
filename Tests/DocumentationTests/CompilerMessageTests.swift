// Rules proved here, with the compiler:
// - It says what docs/pitfalls.md quotes, about the mistakes that the page names.

#if os(Linux)

import Foundation
import Testing

private struct Mistake: CustomTestStringConvertible, Sendable {
    let message: String
    let source: String
    var testDescription: String { message }

    init(_ message: String, _ source: String) { (self.message, self.source) = (message, source) }
}

private let mistakes = [
    Mistake(
        "no exact matches in call to instance method 'perform'",
        "import EventLoop\nfunc report() async {}\nfunc test(_ loop: RunLoop) { loop.perform { await report() } }"),
    Mistake(
        "cannot pass function of type '@Sendable (RunLoop.Timer) async -> ()' to parameter expecting synchronous function type",
        "import EventLoop\nfunc report() async {}\nfunc test() { RunLoop.Timer.scheduled(every: .seconds(1)) { _ in await report() } }"),
    Mistake(
        "'async' call in a function that does not support concurrency",
        "import EventLoop\nfunc test(_ loop: RunLoop) { _ = try loop.withTimeout(.seconds(1)) { 1 } }"),
    Mistake(
        "'async' call in a function that does not support concurrency",
        "import EventLoopStreams\nfunc test(_ stream: ByteStream) throws { try stream.write([]) }"),
    Mistake(
        "instance method 'run' is unavailable from asynchronous contexts", "import EventLoop\nfunc test() async { RunLoop.main.run() }"),
    Mistake(
        "instance method 'run' is unavailable from asynchronous contexts",
        "import EventLoop\ntry await RunLoop.main.clock.sleep(for: .zero)\nRunLoop.main.run()"),
    Mistake(
        "class property 'current' is unavailable from asynchronous contexts",
        "import EventLoop\nfunc test() async { _ = RunLoop.current }"),
    Mistake(
        "static method 'scheduled' is unavailable from asynchronous contexts",
        "import EventLoop\nfunc test() async { RunLoop.Timer.scheduled(every: .seconds(1)) { _ in } }"),
    Mistake(
        "type 'RunLoop' has no member 'Watchdog'",
        "import EventLoop\nfunc test() { _ = RunLoop.Watchdog(threshold: .seconds(1)) { _ in } }"),
    Mistake(
        "'main' attribute cannot be used in a module that contains top-level code",
        "import EventLoop\n@main enum Program { static func main() { RunLoop.main.run() } }"),
    Mistake(
        "main actor-isolated var 'ticks' can not be mutated from a nonisolated context",
        "import EventLoop\nvar ticks = 0\nRunLoop.Timer.scheduled(every: .seconds(1)) { _ in ticks += 1 }"),
    Mistake(
        "mutation of captured var 'count' in concurrently-executing code",
        "import EventLoop\nfunc test(_ loop: RunLoop) { var count = 0; loop.perform { count += 1 } }"),
    Mistake(
        "reference to captured var 'options' in concurrently-executing code",
        """
        import EventLoop
        func test(_ loop: RunLoop) {
            var options = [1]
            options.append(2)
            loop.perform { print(options) }
        }
        """),
    Mistake(
        "capture of 'cache' with non-Sendable type 'Cache' in a '@Sendable' closure",
        "import EventLoop\nfinal class Cache { var n = 0 }\nfunc test(_ loop: RunLoop, _ cache: Cache) { loop.perform { cache.n += 1 } }"),
    Mistake(
        "call to main actor-isolated instance method 'add()' in a synchronous nonisolated context",
        "import EventLoop\n@MainActor final class Model { func add() {} }\nfunc test(_ model: Model) { RunLoop.main.perform { model.add() } }"
    ),
    Mistake(
        "'RunLoop' is ambiguous for type lookup in this context",
        "import EventLoop\nimport Foundation\nfunc test(_ loop: RunLoop) {}"),
    Mistake("ambiguous use of 'current'", "import EventLoop\nimport Foundation\nfunc test() { RunLoop.current.run() }"),
    Mistake(
        "'Timer' is ambiguous for type lookup in this context",
        "import EventLoopFoundation\nimport Foundation\nfunc test(_ timer: Timer) {}"),
    // A protocol of that name in the file's own module shadows the package's as NIO's does.
    Mistake(
        "'RunLoop' is not a member type of protocol 'main.EventLoop'",
        "import EventLoop\nprotocol EventLoop {}\nfunc test(_ loop: EventLoop.RunLoop) {}"),
]

private let cures = [
    "import EventLoop\nimport Foundation\ntypealias RunLoop = EventLoop.RunLoop\nfunc test(_ loop: RunLoop, _ timer: RunLoop.Timer) {}",
    "import Foundation\nimport class EventLoop.RunLoop\nprotocol EventLoop {}\nfunc test(_ loop: RunLoop, _ timer: RunLoop.Timer) {}",
    """
    import EventLoop
    @MainActor final class Model { func add() {} }
    func test(_ model: Model) { RunLoop.main.perform { MainActor.assumeIsolated { model.add() } } }
    """,
]

@Suite struct CompilerMessageTests {
    @Test(arguments: mistakes)
    private func `the compiler says about a mistake what the page quotes`(mistake: Mistake) throws {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../docs/pitfalls.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        #expect(text.contains(mistake.message.replacingOccurrences(of: "'main.", with: "'NIOCore.")))
        #expect(try diagnostics(of: mistake.source).contains(mistake.message))
    }

    @Test(arguments: cures) func `the cures compile`(source: String) throws {
        #expect(try diagnostics(of: source) == "")
    }
}

#endif
