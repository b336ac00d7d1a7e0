// Programs of the package that tests start, and what they print.

public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The path of a program that is built into the folder of the tests.
public func builtProgram(_ name: String) -> String {
    var path = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
    let length = readlink("/proc/self/exe", &path, path.count - 1)
    let tests = String(decoding: path[..<max(length, 0)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return tests.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/") + "/" + name
}

/// The exit code of a process that ended with this status of `waitpid`, or 128 plus its signal.
public func exitCode(ofStatus status: Int32) -> Int32 {
    // WIFEXITED and WEXITSTATUS are macros. The low bits hold the number of a signal.
    status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
}

/// The sanitizers' settings of the tests, for a program that inherits no other variables.
public let sanitizerSettings = ["TSAN_OPTIONS", "ASAN_OPTIONS", "LSAN_OPTIONS"].compactMap { (name: String) -> String? in
    getenv(name).map { "\(name)=\(String(cString: $0))" }
}

/// Reads the lines that a program prints.
public struct LineReader {
    private let descriptor: Int32
    private var unread: [UInt8] = []

    /// - Parameter descriptor: stays the caller's, who closes it.
    public init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// The next line, without its end; nil if the program has closed its output.
    public mutating func line(_ what: String, _ location: SourceLocation = #_sourceLocation) throws -> String? {
        while true {  // ends: with a line, with the output, or by throwing
            if let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
                defer { unread.removeSubrange(...end) }
                return String(decoding: unread[..<end], as: UTF8.self)
            }
            guard let piece = try readPiece(descriptor, what, location) else { return nil }
            unread += piece
        }
    }

    /// Everything up to the end of the output.
    public mutating func rest(_ what: String, _ location: SourceLocation = #_sourceLocation) throws -> String {
        while let piece = try readPiece(descriptor, what, location) { unread += piece }  // ends: with the output, or by throwing
        defer { unread = [] }
        return String(decoding: unread, as: UTF8.self)
    }
}
