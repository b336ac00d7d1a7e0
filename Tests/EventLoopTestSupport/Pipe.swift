// A pipe for tests. Releasing it closes its descriptors.

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
        precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
        for end in ends { precondition(fcntl(end, F_SETFL, O_NONBLOCK) == 0) }
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

    /// Reads all available data; returns an empty string if there is none.
    @discardableResult
    public func readAll() -> String { drain(readEnd) }
}

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

/// Reads the available data of a non-blocking descriptor.
@discardableResult
public func drain(_ descriptor: Int32) -> String {
    var text = ""
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {  // ends: no thread writes while we read, and each turn takes bytes or finds none
        let count = read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return text }
        text += String(decoding: buffer[..<count], as: UTF8.self)
    }
}
