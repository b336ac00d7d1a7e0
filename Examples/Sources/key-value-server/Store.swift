// The keys, and what a command does with them.

struct Store {
    private var values: [Bytes: Bytes] = [:]

    /// The answers to all commands, in their order.
    mutating func answers(to batch: Batch) -> [UInt8] {
        var answers: [UInt8] = []
        answers.reserveCapacity(32 * batch.commands.count)
        for command in batch.commands { answer(command, batch.bytes, &answers) }
        return answers
    }

    private mutating func answer(_ command: Batch.Command, _ bytes: [UInt8], _ answers: inout [UInt8]) {
        let name = bytes[command.name]
        switch command.count {
        case 3 where name.isCommand("SET"):
            values[Bytes(bytes[command.first])] = Bytes(bytes[command.second])
            answers += "+OK\r\n".utf8
        case 2 where name.isCommand("GET"):
            guard let value = values[Bytes(bytes[command.first])] else { return answers += "$-1\r\n".utf8 }
            answers.append(UInt8(ascii: "$"))
            answers += String(value.bytes.count).utf8
            answers += "\r\n".utf8
            answers += value.bytes
            answers += "\r\n".utf8
        case 2 where name.isCommand("DEL"):
            answers += (values.removeValue(forKey: Bytes(bytes[command.first])) == nil ? ":0\r\n" : ":1\r\n").utf8
        case 1 where name.isCommand("PING"):
            answers += "+PONG\r\n".utf8
        default:
            answers += "-ERR GET, SET, DEL or PING?\r\n".utf8
        }
    }
}

/// A key or a value. Hashes all bytes at once, where an array hashes them one by one.
private struct Bytes: Hashable {
    let bytes: [UInt8]

    init(_ bytes: ArraySlice<UInt8>) { self.bytes = Array(bytes) }

    func hash(into hasher: inout Hasher) { bytes.withUnsafeBytes { hasher.combine(bytes: $0) } }
}

extension ArraySlice<UInt8> {
    /// Whether this is the name, in upper or lower case.
    fileprivate func isCommand(_ name: StaticString) -> Bool {
        guard count == name.utf8CodeUnitCount else { return false }
        for (offset, byte) in enumerated() where byte & ~0x20 != name.utf8Start[offset] { return false }
        return true
    }
}
