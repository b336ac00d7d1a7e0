// One case: a forked process that runs a body, and its result.

import CFaults
import EventLoop
import EventLoopStreams

#if canImport(Glibc)
import Glibc
#endif

/// The library misbehaved.
struct Wrong: Error { let text: String }

/// A call that the scenario itself makes has failed, so the case says nothing about the library.
struct OwnCall: Error {
    let name: String
    let code = errno
}

enum Ending: Int32 {
    case nothing, worked, threw, wrong
}

/// The result of a case, and its description.
struct Verdict {
    var ending = Ending.nothing
    var isGood = false
    var text = ""
}

struct Case {
    /// An upper bound for a case's duration. A case that still runs after it hangs.
    static let patience: UInt32 = 30

    /// Runs `body` in a child process. An error of the library that `body` throws is a good result.
    static func run(mayStop: Bool, _ body: () throws -> Void) -> Verdict {
        let report = faults_report()!
        report.pointee.outcome = 0
        setText("")
        let errors = faults_make_file()
        precondition(errors >= 0, "faults_make_file: errno \(errno)")
        defer { close(errors) }
        fflush(nil)
        let child = systemFork()
        precondition(child >= 0, "fork: errno \(errno)")
        if child == 0 {
            dup2(errors, STDERR_FILENO)
            close(errors)
            setpgid(0, 0)
            alarm(patience)
            conclude(Result { try body() })
        }
        var status: Int32 = 0
        while waitpid(child, &status, 0) < 0 && errno == EINTR {}
        // Processes that the case started.
        kill(-child, SIGKILL)
        return judge(status, mayStop, contents(errors))
    }

    private static func conclude(_ result: Result<Void, any Error>) -> Never {
        faults_disarm()
        let report = faults_report()!
        var ending = Ending.worked
        if case .failure(let error) = result {
            switch error {
            case let error as Wrong:
                ending = .wrong
                setText(error.text)
            case is RunLoop.SourceError, is RunLoop.PortError, is OwnCall, is PerformTimedOut, is RunLoopEnded, is StreamError:
                // The reader of the error needs the cause.
                ending = "\(error)".contains("errno: 0") ? .wrong : .threw
                setText("\(error)")
            default:
                ending = .wrong
                setText("an error of no known type: \(error)")
            }
        }
        report.pointee.outcome = ending.rawValue
        _exit(0)
    }

    private static func judge(_ status: Int32, _ mayStop: Bool, _ errors: String) -> Verdict {
        let report = faults_report()!
        var verdict = Verdict(ending: Ending(rawValue: report.pointee.outcome) ?? .nothing, text: text())
        let signal = status & 0x7F
        if signal == SIGALRM {
            verdict.text = "hung"
        } else if signal != 0 || status != 0 {
            let sentence = sentence(in: errors)
            verdict.isGood = mayStop && (sentence?.count ?? 0) > 60
            verdict.text =
                "stopped by \(signal == 0 ? "exit \(status >> 8)" : "signal \(signal)"): \(sentence.map { String($0) } ?? errors)"
        } else {
            verdict.isGood = verdict.ending == .worked || verdict.ending == .threw
        }
        return verdict
    }

    /// The message with which the process stopped.
    static func sentence(in errors: String) -> Substring? {
        errors.split(separator: "\n").first { $0.contains("Fatal error: ") || $0.contains("Precondition failed: ") }
    }

    private static func setText(_ text: String) {
        let report = faults_report()!
        withUnsafeMutableBytes(of: &report.pointee.text) { memory in
            let bytes = text.utf8.prefix(memory.count - 1)
            memory.copyBytes(from: bytes)
            memory[bytes.count] = 0
        }
    }

    private static func text() -> String {
        withUnsafeBytes(of: &faults_report()!.pointee.text) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }

    static func contents(_ descriptor: Int32) -> String {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = pread(descriptor, &bytes, bytes.count, 0)
        return String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self)
    }
}

// Swift marks fork as unavailable, because the child of a process with several threads may call few functions. This process has one thread.
@_silgen_name("fork") func systemFork() -> Int32

/// The descriptors that this process has open, one word for each.
func openDescriptors() -> [String] {
    (0..<Int32(1024)).filter { fcntl($0, F_GETFD) >= 0 }.map { descriptor in
        var name = [CChar](repeating: 0, count: 256)
        readlink("/proc/self/fd/\(descriptor)", &name, name.count - 1)
        return "\(descriptor):\(String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self))"
    }
}

/// Waits until no more than `before` are open, because other threads close their descriptors a moment later.
func requireNoMoreThan(_ before: [String], plus allowed: Int) throws {
    let deadline = RunLoop.Instant.now.advanced(by: .seconds(5))
    var now = openDescriptors()
    while now.count > before.count + allowed {
        if RunLoop.Instant.now > deadline { throw Wrong(text: "a descriptor leaked: \(before.count) before, \(now.count) after: \(now)") }
        usleep(2_000)
        now = openDescriptors()
    }
}

func limitDescriptors(_ count: Int) {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = min(rlim_t(count), limit.rlim_max)
    precondition(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0, "setrlimit: errno \(errno)")
}

/// Prints at once, also if standard output is not a terminal.
func say(_ line: String) {
    print(line)
    fflush(nil)
}
