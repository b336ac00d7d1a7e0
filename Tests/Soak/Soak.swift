// A long run of all parts at once. It reveals growth, loss and lack of progress.
//
//   eventloop-soak [--seconds 1800] [--fault memory|descriptors|threads|loss|hang]
//
// The load is bounded: timers make it, some 14,000 requests a second, on loopback only. It takes two fifths of one processor. Each request
// is counted when it is made and when it is carried out. Memory, descriptors, threads and response times are sampled. The exit code is 1 if
// a quantity has grown or a request was lost. `--fault` shows that this program detects such faults.

import EventLoop
import Glibc

/// An upper bound for the descriptors that stay open after all parts have ended, regardless of the run's length: those of Dispatch, of the
/// engine of message ports, of the signal handler, and of this program's own thread. There were 13.
private let descriptorsThatStay = 20.0

@main
struct Soak {
    static func main() throws {
        let options = Options(Array(CommandLine.arguments.dropFirst()))
        if let name = options.server { MessagePorts.serve(name) }
        // A time limit ends the program in any case.
        alarm(UInt32(options.seconds + 600))
        var template = Array("/tmp/eventloop-soak-XXXXXX".utf8CString)
        precondition(mkdtemp(&template) != nil, "mkdtemp: errno \(errno)")
        let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        setenv("EVENTLOOP_PORT_DIRECTORY", directory, 1)
        let hasHeld = try run(options)
        // The library leaves its lock file for names.
        if let folder = opendir(directory) {
            while let entry = readdir(folder) { withUnsafePointer(to: entry.pointee.d_name) { _ = unlinkat(dirfd(folder), name($0), 0) } }
            closedir(folder)
        }
        rmdir(directory)
        fflush(nil)
        exit(hasHeld ? 0 : 1)
    }

    private static func run(_ options: Options) throws -> Bool {
        let book = Book()
        let lateness = Delays()
        let (changes, response) = (Changes(book), Response(book))
        let parts: [Part] = [
            Echo(book), Timers(book, lateness: lateness), changes, Ports(book), Performs(book), NestedRuns(book), Jobs(book), Comers(book),
            Signals(book), Children(book), MessagePorts(book), LastingPort(book), response,
        ]
        let before = Sample.now()
        for part in parts {
            if part === response { response.busyLoop = changes.busyLoop }
            try part.start()
        }
        var verdict = Verdict()
        var progress = Progress(book)
        let fault = Fault(options.fault, book)
        let samples = max(40, options.seconds)
        for _ in 0..<samples {
            sleep(.milliseconds(options.seconds * 1_000 / samples))
            fault.happen()
            verdict.add(.now(), response, lateness)
            if progress.hasStopped() { break }
        }
        for part in parts { part.stopAsking() }
        for part in parts { part.finish() }
        // Requests in progress have a minute to complete.
        for _ in 0..<600 where !book.imbalances.isEmpty { sleep(.milliseconds(100)) }
        let imbalances = book.imbalances
        // Threads without progress would not end.
        if imbalances.isEmpty { for part in parts { part.end() } }

        print("\(options.seconds) s of everything at once\n")
        var hasHeld = verdict.print()
        print("\n" + pad("", 62) + pad("asked for", 12) + "done")
        for account in book.accounts {
            let isBalanced = account.asked == account.done
            print(pad(account.name, 62) + pad("\(account.asked)", 12) + "\(account.done)" + (isBalanced ? "" : "   LOST"))
        }
        let left = Sample.now().descriptors - before.descriptors
        print("\ndescriptors left at the end: \(Int(left)) (\(Int(descriptorsThatStay)) are allowed)")
        hasHeld = hasHeld && imbalances.isEmpty && book.faults.isEmpty && left <= descriptorsThatStay
        if left > descriptorsThatStay { print(openDescriptors().joined(separator: "\n")) }
        for fault in book.faults { print("fault: \(fault)") }
        print(hasHeld ? "\nnothing has grown, and nothing is missing" : "\nFAILED")
        return hasHeld
    }

    private static func name(_ field: UnsafeRawPointer) -> UnsafePointer<CChar> { field.assumingMemoryBound(to: CChar.self) }
}

private struct Options {
    var seconds = 1_800
    var fault: String?
    var server: String?

    init(_ arguments: [String]) {
        var rest = arguments[...]
        while let option = rest.popFirst() {  // ends: with the arguments
            let value = rest.popFirst()
            switch (option, value) {
            case ("--seconds", let value?): seconds = max(8, Int(value) ?? seconds)
            case ("--fault", let value?): fault = value
            case ("--serve", let value?): server = value
            default:
                complain("usage: eventloop-soak [--seconds 1800] [--fault memory|descriptors|threads|loss|hang]")
                exit(2)
            }
        }
    }
}

/// Finds parts that make no progress while the others continue.
private struct Progress {
    private let book: Book
    private var last: [String: (done: Int, since: ContinuousClock.Instant)] = [:]

    init(_ book: Book) { self.book = book }

    /// Whether an account has not changed for a minute.
    mutating func hasStopped() -> Bool {
        let now = ContinuousClock.now
        for account in book.accounts {
            let known = last[account.name]
            if known?.done != account.done { last[account.name] = (account.done, now) }
            if let known, known.done == account.done, now - known.since > .seconds(60) {
                book.fault("\(account.name): nothing for a minute")
                return true
            }
        }
        return false
    }
}

/// On request, causes a fault of the kind that this program must detect.
private final class Fault {
    private let kind: String?
    private let account: Account?
    private var blocks: [[UInt8]] = []

    init(_ kind: String?, _ book: Book) {
        self.kind = kind
        account = kind == "loss" || kind == "hang" ? book.account("fault on demand") : nil
    }

    func happen() {
        switch kind {
        case "memory": blocks.append([UInt8](repeating: 1, count: 100_000))
        case "descriptors": _ = dup(0)
        case "threads":
            var handle = pthread_t()
            pthread_create(
                &handle, nil,
                { _ in
                    pause()
                    return nil
                }, nil)
        case "loss":
            account?.ask(2)
            account?.finish()
        case "hang":
            if account?.asked == 0 {
                account?.ask()
                account?.finish()
            }
        default: break
        }
    }
}
