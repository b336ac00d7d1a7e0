// The commands of Redis's protocol: `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n` is the array of GET and k.

import EventLoopStreams

/// Commands that came together, with their bytes.
struct Batch {
    struct Command {
        /// The name and at most two arguments; empty where there is none.
        var name = 0..<0
        var first = 0..<0
        var second = 0..<0
        var count = 0
    }

    let bytes: [UInt8]
    let commands: [Command]

    /// Takes all commands that have come completely. Nil if there is none; throws if the bytes are no command.
    init?(takenFrom received: inout ReceivedBytes) throws(ProtocolError) {
        var commands: [Command] = []
        let complete = try Self.parse(&received, &commands)
        guard complete > 0 else { return nil }
        self.commands = commands
        bytes = received.take(complete)
    }

    /// Returns the number of bytes that all of `commands` take.
    private static func parse(_ received: inout ReceivedBytes, _ commands: inout [Command]) throws(ProtocolError) -> Int {
        try received.withUnsafeBytes { bytes throws(ProtocolError) in
            var scanner = Scanner(bytes: bytes)
            var complete = 0
            while let command = try scanner.command() {  // ends: each has a byte at least
                commands.append(command)
                complete = scanner.position
            }
            return complete
        }
    }
}

struct ProtocolError: Error {}

/// All commands that have come completely, as one message.
struct BatchFraming: StreamFraming {
    mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> Batch? { try Batch(takenFrom: &bytes) }
}

/// Reads commands, and returns nil where more must come.
private struct Scanner {
    /// What a client may send as one command. It fits into a stream's `receiveLimit`, or the rest would never be read.
    private static let (mostWords, longestWord) = (7, 8_192)

    let bytes: UnsafeRawBufferPointer
    var position = 0

    mutating func command() throws(ProtocolError) -> Batch.Command? {
        guard let words = try number(after: UInt8(ascii: "*"), limit: Self.mostWords) else { return nil }
        var command = Batch.Command()
        for index in 0..<words {
            guard let length = try number(after: UInt8(ascii: "$"), limit: Self.longestWord) else { return nil }
            guard bytes.count - position >= length + 2 else { return nil }
            let word = position..<position + length
            switch index {
            case 0: command.name = word
            case 1: command.first = word
            case 2: command.second = word
            default: break
            }
            position += length + 2
        }
        command.count = words
        return command
    }

    /// A sign, a number, CR and LF.
    private mutating func number(after sign: UInt8, limit: Int) throws(ProtocolError) -> Int? {
        var index = position
        guard index < bytes.count else { return nil }
        guard bytes[index] == sign else { throw ProtocolError() }
        index += 1
        var value = 0
        while index < bytes.count {  // ends: `index` grows
            let byte = bytes[index]
            index += 1
            if byte == UInt8(ascii: "\r") {
                guard index < bytes.count else { return nil }
                position = index + 1
                return value
            }
            guard case 0x30...0x39 = byte else { throw ProtocolError() }
            value = value * 10 + Int(byte - 0x30)
            if value > limit { throw ProtocolError() }
        }
        return nil
    }
}
