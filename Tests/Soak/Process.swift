// Figures about this process from the kernel and the C library.

import Glibc

/// The quantities that must not grow.
struct Sample {
    /// The allocated bytes, in all arenas.
    var allocated: Double
    var resident: Double
    var descriptors: Double
    var threads: Double

    static func now() -> Sample {
        Sample(
            allocated: Double(allocatedBytes()), resident: Double(residentBytes()),
            descriptors: Double(entries(of: "/proc/self/fd")), threads: Double(entries(of: "/proc/self/task")))
    }
}

private func residentBytes() -> Int {
    guard let file = fopen("/proc/self/statm", "r") else { return 0 }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    guard fgets(&line, Int32(line.count), file) != nil else { return 0 }
    let fields = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).split(separator: " ")
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(getpagesize()) : 0
}

/// A description of each open descriptor.
func openDescriptors() -> [String] {
    (0..<1024).compactMap { number in
        var target = [CChar](repeating: 0, count: 256)
        let length = readlink("/proc/self/fd/\(number)", &target, target.count)
        return length < 0 ? nil : "\(number): " + String(decoding: target[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

private func entries(of path: String) -> Int {
    guard let folder = opendir(path) else { return 0 }
    defer { closedir(folder) }
    var count = 0
    while readdir(folder) != nil { count += 1 }  // ends: with the folder
    return count
}

/// Blocks the calling thread for the given duration.
func sleep(_ duration: Duration) {
    let end = ContinuousClock.now + duration
    // A signal handler may run on this thread and interrupt the sleep.
    while case let left = end - .now, left > .zero {  // ends: time advances
        let (seconds, attoseconds) = left.components
        var time = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
        nanosleep(&time, nil)
    }
}

/// Prints a line to standard error.
func complain(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(STDERR_FILENO, bytes, bytes.count)
}

/// Starts a program. The caller watches it with a `ProcessSource`, which reaps it.
func spawn(_ program: String, _ arguments: [String]) -> Int32 {
    var words: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    // A child that outlives this program must not keep its output open, because another process may wait for the output to end.
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
    var child = pid_t()
    let code = posix_spawn(&child, program, &actions, nil, &words, environ)
    precondition(code == 0, "\(program): errno \(code)")
    return child
}

final class PipePair: Sendable {
    let readEnd: Int32
    let writeEnd: Int32

    init() {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0, "pipe: errno \(errno)")
        for end in ends {
            precondition(fcntl(end, F_SETFL, O_NONBLOCK) == 0)
            precondition(fcntl(end, F_SETFD, FD_CLOEXEC) == 0)
        }
        (readEnd, writeEnd) = (ends[0], ends[1])
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    func writeByte() { _ = withUnsafeBytes(of: UInt8(1)) { write(writeEnd, $0.baseAddress, 1) } }

    func drain() {
        var buffer = [UInt8](repeating: 0, count: 256)
        while read(readEnd, &buffer, buffer.count) > 0 {}  // ends: the writer is slower
    }
}
