// Standard output: one buffer, written with write(2) when a section is complete.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

final class Terminal {
    let palette: Palette
    /// The reader is gone; nothing more is written, and the demo may stop.
    private(set) var isBroken = false
    private var buffer: [UInt8] = []

    init() {
        palette = Palette(isOn: Terminal.wantsColour)
    }

    func line(_ text: String = "") {
        buffer.append(contentsOf: text.utf8)
        buffer.append(UInt8(ascii: "\n"))
    }

    func flush() {
        if !isBroken { isBroken = !Terminal.put(buffer, STDOUT_FILENO) }
        buffer.removeAll(keepingCapacity: true)
    }

    static func complain(_ sentence: String) {
        _ = put(Array("eventloop-demo: \(sentence)\n".utf8), STDERR_FILENO)
    }

    /// Returns false if the descriptor accepts no more.
    private static func put(_ bytes: [UInt8], _ descriptor: Int32) -> Bool {
        bytes.withUnsafeBytes { bytes in
            var rest = bytes[...]
            // Ends: each round writes something, fails, or waits for a terminal that is non-blocking.
            while !rest.isEmpty {
                let chunk = UnsafeRawBufferPointer(rebasing: rest)
                let count = write(descriptor, chunk.baseAddress, chunk.count)
                if count >= 0 {
                    rest = rest.dropFirst(count)
                } else if errno == EAGAIN {
                    var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                    _ = poll(&waiting, 1, -1)
                } else if errno != EINTR {
                    return false
                }
            }
            return true
        }
    }

    /// no-color.org: a non-empty variable NO_COLOR turns colors off.
    private static var wantsColour: Bool {
        guard isatty(STDOUT_FILENO) == 1 else { return false }
        return (Process.environment("NO_COLOR") ?? "").isEmpty && Process.environment("TERM") != "dumb"
    }
}

/// Colors, or none. Pad before you color: the codes use no columns, but count as characters.
struct Palette: Sendable {
    let isOn: Bool

    static let plain = Palette(isOn: false)

    func bold(_ text: String) -> String { code("1", text) }
    func dim(_ text: String) -> String { code("2", text) }
    func green(_ text: String) -> String { code("32", text) }
    func yellow(_ text: String) -> String { code("33", text) }
    func blue(_ text: String) -> String { code("34", text) }
    func cyan(_ text: String) -> String { code("36", text) }

    private func code(_ code: String, _ text: String) -> String {
        isOn && !text.isEmpty ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
    }
}
