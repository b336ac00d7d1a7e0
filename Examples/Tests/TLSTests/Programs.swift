// The programs that the tests talk to: openssl and curl.

import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A program with files for its input and output. Releasing the object ends the program.
final class Program: Sendable {
    private let child: Child
    private let outputFile: String

    /// - Parameter input: a file; without one, the program's input is empty.
    convenience init(_ name: String, _ arguments: [String], in folder: String, input: String? = nil) throws {
        self.init(path: try programPath(name), arguments, in: folder, input: input)
    }

    init(path: String, _ arguments: [String], in folder: String, input: String? = nil) {
        outputFile = folder + "/output"
        // The shell's `exec` leaves one process.
        child = Child(
            "/bin/sh",
            ["-c", "exec \"$0\" \"$@\" <'\(input ?? "/dev/null")' >'\(outputFile)' 2>&1", path] + arguments)
    }

    /// What it has printed so far.
    var output: String {
        let descriptor = open(outputFile, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        return drain(descriptor)
    }

    func kill() { child.kill() }
    func kill(_ signal: Int32) { child.kill(signal) }

    /// The exit code, when it has ended by itself; 128 and the number of the signal that ended it.
    func end() async throws -> Int32 {
        var status: Int32 = -1
        let pid = child.pid
        try await suspendUntil("the program ends") { waitpid(pid, &status, WNOHANG) == pid }
        return status & 0x7f == 0 ? status >> 8 & 0xff : 128 + (status & 0x7f)
    }
}

/// A pipe with a name, to type into a program.
final class Typing: Sendable {
    let path: String
    private let descriptor: Int32

    init(_ path: String) {
        self.path = path
        precondition(mkfifo(path, 0o600) == 0, "mkfifo: errno \(errno)")
        // Open for reading too, so that this does not wait for the program.
        descriptor = open(path, O_RDWR | O_CLOEXEC)
    }

    deinit { close(descriptor) }

    func type(_ text: String) {
        let bytes = Array(text.utf8)
        precondition(write(descriptor, bytes, bytes.count) == bytes.count)
    }
}
