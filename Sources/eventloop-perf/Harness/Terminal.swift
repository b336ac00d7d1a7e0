// Standard output for results, standard error for progress and errors.

import Glibc

enum Terminal {
    static func line(_ text: String = "") {
        print(text)
        fflush(nil)
    }

    static func complain(_ text: String) {
        toStandardError("eventloop-perf: \(text)\n")
    }

    /// A line that the next one replaces. Prints nothing if the output is not a terminal.
    static func progress(_ text: String) {
        guard isatty(2) == 1 else { return }
        toStandardError("\r\u{1B}[K\(text.prefix(100))")
    }

    private static func toStandardError(_ text: String) {
        let bytes = Array(text.utf8)
        _ = Glibc.write(2, bytes, bytes.count)
    }

    static func endProgress() { progress("") }

    static func write(_ text: String, to path: String) throws(PerfError) {
        guard let file = fopen(path, "w") else { throw PerfError("cannot write \(path): \(String(cString: strerror(errno)))") }
        fputs(text, file)
        guard fclose(file) == 0 else { throw PerfError("cannot write \(path): \(String(cString: strerror(errno)))") }
    }

    static func read(_ path: String) throws(PerfError) -> String {
        guard let file = fopen(path, "r") else { throw PerfError("cannot read \(path): \(String(cString: strerror(errno)))") }
        defer { fclose(file) }
        return readToEnd(of: fileno(file))
    }

    static func readToEnd(of descriptor: Int32) -> String {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {  // ends with the file
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count <= 0 { break }
            bytes += buffer[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The path of this program.
    static var ownPath: String {
        var buffer = [CChar](repeating: 0, count: 4_096)
        let length = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        return String(decoding: buffer.prefix(max(length, 0)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// An early end of the program: a message, and the exit code.
struct PerfError: Error {
    let sentence: String
    let code: Int32

    /// The code for a case that the machine's limits do not allow.
    static let notHere: Int32 = 3

    init(_ sentence: String, code: Int32 = 1) { (self.sentence, self.code) = (sentence, code) }
    static func usage(_ sentence: String) -> PerfError { PerfError(sentence, code: 2) }
}
