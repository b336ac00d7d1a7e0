// Standard output, files, and numbers for people.

import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Thread-safe. Not `print`, which keeps lines back if the output is a pipe.
func say(_ line: String = "") { _ = write(line + "\n", to: STDOUT_FILENO) }

func complain(_ sentence: String) { _ = write("eventloop-demo: \(sentence)\n", to: STDERR_FILENO) }

func leave(_ code: Int32) -> Never { exit(code) }

/// Returns false on an error.
private func write(_ text: String, to descriptor: Int32) -> Bool {
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {  // ends: each iteration writes some of it, or is interrupted
        let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        if count > 0 { rest = rest.dropFirst(count) } else if errno != EINTR { return false }
    }
    return true
}

/// Writes a file that only this user can read, and returns its path. Without a path, makes a new file in the folder for temporary files: a
/// fixed name there could be somebody else's link.
func writeFile(_ text: String, to path: String?) throws -> String {
    var template = Array("/tmp/eventloop-demo-XXXXXX.html".utf8CString)
    let descriptor = path.map { open($0, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600) } ?? mkstemps(&template, 5)
    defer { close(descriptor) }
    let path = path ?? String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    guard descriptor >= 0, write(text, to: descriptor) else { throw Failure("cannot write \(path): \(String(cString: strerror(errno)))") }
    return path
}

extension String {
    func padded(_ width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
    /// To the right.
    func aligned(_ width: Int) -> String { String(repeating: " ", count: max(0, width - count)) + self }
}

/// 1234567 → "1,234,567".
func grouped(_ number: some BinaryInteger) -> String {
    var text = String(number)
    var place = text.endIndex
    while text.formIndex(&place, offsetBy: -3, limitedBy: text.startIndex), place > text.startIndex { text.insert(",", at: place) }
    return text
}

/// "1 loop", "2 loops".
func counted(_ number: Int, _ noun: String) -> String { "\(grouped(number)) \(noun)\(number == 1 ? "" : "s")" }

/// At most three digits before the point and one behind it, and a unit: "61.4 µs".
func short(_ duration: Duration) -> String {
    var (value, unit) = (duration / .nanoseconds(1), "ns")
    for next in ["µs", "ms", "s"] where value >= 999.5 { (value, unit) = (value / 1000, next) }
    let tenths = Int((value * 10).rounded())
    return unit == "ns" || tenths >= 1000 ? "\(grouped((tenths + 5) / 10)) \(unit)" : "\(tenths / 10).\(tenths % 10) \(unit)"
}

/// What each loop has done, a row for each. At most 80 columns.
func table(of loops: [(name: String, loop: RunLoop)]) -> String {
    let columns = [("passes", 10), ("waits", 10), ("wake-ups", 10), ("timers", 8), ("jobs", 10), ("waiting", 10), ("working", 10)]
    let head = "  " + "loop".padded(9) + columns.map { $0.0.aligned($0.1) }.joined()
    let rows = loops.map { name, loop in
        let statistics = loop.statistics
        let counts = [statistics.passes, statistics.waits, statistics.wakeUps, statistics.timersFired, statistics.jobsPerformed].map(
            grouped)
        let cells = counts + [statistics.timeWaiting, statistics.timeWorking].map(short)
        return "  " + name.padded(9) + zip(cells, columns).map { $0.aligned($1.1) }.joined()
    }
    return ([head] + rows).joined(separator: "\n")
}
