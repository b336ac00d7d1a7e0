// A reply that a port cannot send.

internal import EventLoop

/// Why a reply cannot be sent.
enum Refusal {
    /// The body is the number of bytes.
    static let tooLarge: Int32 = 1

    static func body(_ number: Int) -> [UInt8] { withUnsafeBytes(of: UInt64(number).littleEndian) { Array($0) } }

    /// The error for the requester; nil if no port sends such a refusal.
    static func error(_ frame: Frame) -> RunLoop.PortError? {
        if frame.id != tooLarge { return nil }
        let number = frame.body.withUnsafeBytes { UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }
        return .messageTooLarge(Int(clamping: number))
    }
}
