// Sends notifications to a service manager: datagrams of lines, each an assignment (sd_notify(3)).
//
// Lifecycle: init opens the socket, deinit closes it.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// Thread-safe: the socket has no state of ours.
final class SupervisorNotifier: Sendable {
    /// systemd ignores a longer one.
    private static let longestNotification = 4_096
    private static let longestStatus = 2_048
    /// For how long a send waits for room.
    private static let patienceMilliseconds: Int32 = 1_000

    private let address: RunLoop.SocketAddress
    private let native: cplatform_address
    private let descriptor: Int32
    private let mark = ProcessMark()

    init(_ address: RunLoop.SocketAddress) throws(RunLoop.SupervisorError) {
        self.address = address
        do throws(RunLoop.SourceError) { native = try address.native() } catch {
            throw .badVariable(name: "NOTIFY_SOCKET", value: address.description, reason: "cannot be the address of a socket")
        }
        // Kept open, so that a process without free descriptors can still be seen to live.
        descriptor = cplatform_make_notifier()
        let code = errno
        if descriptor < 0 { throw .system(operation: "socket for \(address)", errno: code) }
    }

    deinit { cplatform_close(descriptor) }

    /// Blocks while the receiver has no room, unless `waits` is false.
    func send(_ lines: [String], waits: Bool = true) throws(RunLoop.SupervisorError) {
        if lines.isEmpty || !mark.isOurs { return }
        let text = Array(lines.joined(separator: "\n").utf8)
        if text.count > Self.longestNotification {
            throw .badNotification("it has \(text.count) bytes, and \(Self.longestNotification) is the most that a service manager accepts")
        }
        var native = native
        let code = text.withUnsafeBytes {
            cplatform_send_datagram(descriptor, &native, $0.baseAddress, $0.count, waits ? Self.patienceMilliseconds : 0)
        }
        if code != 0 { throw .system(operation: "notify \(address)", errno: code) }
    }

    /// The same for names and values that the caller has not checked.
    func send(_ assignments: KeyValuePairs<String, String>) throws(RunLoop.SupervisorError) {
        if mark.isOurs { try send(Self.lines(assignments)) }
    }

    private static func lines(_ assignments: KeyValuePairs<String, String>) throws(RunLoop.SupervisorError) -> [String] {
        var lines: [String] = []
        for (name, value) in assignments {
            guard !name.isEmpty, name.utf8.allSatisfy(isPartOfName) else {
                throw .badNotification("\(quoted(name)) is no name of a variable")
            }
            guard !value.utf8.contains(where: { $0 == 0 || $0 == UInt8(ascii: "\n") }) else {
                throw .badNotification("the value of \(name) has a line break or a zero byte")
            }
            lines.append("\(name)=\(value)")
        }
        return lines
    }

    private static func isPartOfName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
            UInt8(ascii: "_"):
            true
        default: false
        }
    }

    /// One line: a line break would begin another assignment.
    static func sanitized(_ status: String) -> String {
        var bytes: [UInt8] = []
        for scalar in status.unicodeScalars {
            let isControl = scalar.properties.generalCategory == .control
            let encoded = UTF8.encode(isControl ? " " : scalar)!  // every scalar has an encoding
            if bytes.count + encoded.count > longestStatus { break }
            bytes += encoded
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
