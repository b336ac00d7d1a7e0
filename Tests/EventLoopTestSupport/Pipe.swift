// A pipe or a socket pair for tests, closed when it is released.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

public final class Pipe: Sendable {
    public let readEnd: Int32
    public let writeEnd: Int32

    public init() {
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

    public func write(_ text: String = "x") {
        let bytes = Array(text.utf8)
        let count = bytes.withUnsafeBytes { systemWrite(writeEnd, $0) }
        precondition(count == bytes.count, "write: \(count), errno \(errno)")
    }

    /// All that can be read now; empty when there is nothing.
    @discardableResult
    public func readAll() -> String { drain(readEnd) }
}

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

/// Reads what a non-blocking descriptor has.
@discardableResult
public func drain(_ descriptor: Int32) -> String {
    var text = ""
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {  // ends: each turn takes bytes that the writer does not make while we read, or finds none
        let count = read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return text }
        text += String(decoding: buffer[..<count], as: UTF8.self)
    }
}
