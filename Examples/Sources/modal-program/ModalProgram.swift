// A program for the terminal that asks a question in a modal run. Ctrl-C (SIGINT) asks whether it should end.
//
//   modal-program [SECONDS]      how long it waits for an answer; 10
//
// Two modes share the main loop. The default mode has the clock, the results of a worker, and Ctrl-C. The mode `.modalPanel` has the standard
// input and what belongs to an open question. A run serves one mode: while the question is open, a nested run serves `.modalPanel`, and the
// loop holds back everything of the default mode. Nothing of it is lost: it comes when the question is closed.

import EventLoop
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The lines that the user types. They are read in `.modalPanel` only: a line that is typed before the question waits in the kernel.
final class Input: Sendable {
    /// Handlers run on the loop's thread, so they share this without a lock.
    private let unread = LoopBound<[UInt8]>([], to: .main)
    private let over = LoopBound(false, to: .main)
    var isOver: Bool { over.value }
    var hasLine: Bool { unread.value.contains(UInt8(ascii: "\n")) }

    /// Throws if the standard input is a file, which the kernel cannot watch.
    init() throws(RunLoop.SourceError) {
        let source = try RunLoop.DescriptorSource(descriptor: STDIN_FILENO, events: .read) { source, _ in
            var buffer = [UInt8](repeating: 0, count: 1_024)
            let count = read(source.descriptor, &buffer, buffer.count)
            self.unread.value += buffer[..<max(count, 0)]
            // The end of the input stays readable forever. A source that is still there would be called again and again.
            if count == 0 || count < 0 && errno != EAGAIN && errno != EINTR {
                self.over.value = true
                source.invalidate()
            }
            // Ends the innermost run in progress. That is the question's, because only that run calls this handler. The outer run, which
            // waits for it, goes on.
            if self.isOver || self.hasLine { RunLoop.main.stop() }
        }
        RunLoop.main.add(source, forMode: .modalPanel)
    }

    /// Nil if there is no whole line.
    func takeLine() -> String? {
        guard let end = unread.value.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        defer { unread.value.removeSubrange(...end) }
        return String(decoding: unread.value[..<end], as: UTF8.self)
    }
}

/// Works on a thread of its own, and does not know of questions. It posts its results for the default mode.
final class Worker: Sendable {
    private let produced = Atomic(0)
    private let shown = Atomic(0)
    private let thread: RunLoopThread
    var heldBack: Int { produced.load(ordering: .relaxed) - shown.load(ordering: .relaxed) }

    init() throws { thread = try RunLoopThread(name: "worker") }

    func start() {
        thread.runLoop.perform {
            let timer = RunLoop.Timer(every: .milliseconds(300)) { _ in
                let number = self.produced.add(1, ordering: .relaxed).newValue
                // Without `inModes`, a perform is for the common modes. It would be held back as well, unless somebody makes `.modalPanel`
                // one of them (`addCommonMode`).
                RunLoop.main.perform(inModes: [.default]) {
                    self.shown.add(1, ordering: .relaxed)
                    say("result \(number)")
                }
            }
            self.thread.runLoop.add(timer)
        }
    }

    func end() {
        thread.stop()
        thread.join()
    }
}

/// Asks, and returns the answer; nil if there is none in time. On the loop's thread, in a handler of the outer run.
private func ask(_ question: String, _ input: Input, _ worker: Worker, within limit: Duration) -> String? {
    let loop = RunLoop.main
    say(question)
    // A timer that lives as long as the question. It fires while the clock, a timer of the default mode, does not.
    let reminder = RunLoop.Timer(every: .seconds(1)) { _ in say("(waiting for the answer; held back: \(worker.heldBack) results)") }
    loop.add(reminder, forMode: .modalPanel)
    defer { reminder.invalidate() }
    // The answer may have come together with an earlier one. It is read already, so nothing would make the source ready again.
    if input.isOver || input.hasLine { return input.takeLine() }
    // The outer run waits here, in the middle of a callout. The nested run has a limit, a result and a stop of its own.
    switch loop.run(mode: .modalPanel, for: limit) {
    case .stopped: return input.takeLine()
    case .timedOut: return nil
    case .finished, .handledSource: return nil  // not here: the mode has a timer, and the run is not asked to return after a source
    }
}

/// `print` alone would keep lines back that go into a pipe.
private func say(_ text: String) {
    print(text)
    fflush(nil)
}

@main
enum ModalProgram {
    static func main() throws {
        let limit = CommandLine.arguments.dropFirst().first.flatMap { Int($0) } ?? 10
        guard let input = try? Input() else { return say("the standard input has to be a terminal or a pipe") }
        let (loop, worker, start) = (RunLoop.main, try Worker(), RunLoop.Instant.now)

        // Fires at most once for all the seconds that a question took: a timer that is late does not catch up.
        let clock = RunLoop.Timer(every: .seconds(1)) { _ in say("clock: \(Int((.now - start) / .seconds(1))) s") }
        loop.add(clock)

        // In the default mode. A second Ctrl-C during the question is held back like everything else, and asks again afterwards.
        let interrupt = try RunLoop.SignalSource(signal: SIGINT) { _, _ in
            let answer = ask("End the program? (yes or no)", input, worker, within: .seconds(limit))
            say(answer.map { "the answer is \($0)" } ?? "no answer")
            // The nested run is over, so this stop ends the outer one. (After the end of the input, nobody can say yes.)
            if answer == "yes" || input.isOver { loop.stop() }
        }
        loop.add(interrupt)
        worker.start()
        say("press Ctrl-C")
        let result = loop.run()
        worker.end()
        say("the outer run was \(result)")
    }
}
