// The bytes of HTTP/1.1: RFC 9110 and RFC 9112.

#if HTTP

extension UInt8 {
    static let tab = UInt8(ascii: "\t")
    static let lineFeed = UInt8(ascii: "\n")
    static let carriageReturn = UInt8(ascii: "\r")
    static let space = UInt8(ascii: " ")
    static let colon = UInt8(ascii: ":")
    static let comma = UInt8(ascii: ",")
    static let slash = UInt8(ascii: "/")

    /// Letters, digits, and these: !#$%&'*+-.^_`|~ A bit for each byte; constants, because every byte of a head is looked up.
    private static var tokenBits: (low: UInt64, high: UInt64) { (0x03FF_6CFA_0000_0000, 0x57FF_FFFF_C7FF_FFFE) }
    /// Of a host with its port: letters, digits, and -._~%!$&'()*+;=:[] Not the comma, which would allow a list of hosts.
    private static var authorityBits: (low: UInt64, high: UInt64) { (0x2FFF_6FF2_0000_0000, 0x47FF_FFFE_AFFF_FFFE) }

    private func isIn(_ bits: (low: UInt64, high: UInt64)) -> Bool {
        if self < 64 { return bits.low >> self & 1 != 0 }
        return self < 128 && bits.high >> (self - 64) & 1 != 0
    }

    /// `tchar` of RFC 9110, 5.6.2.
    var isToken: Bool { isIn(Self.tokenBits) }
    var isAuthority: Bool { isIn(Self.authorityBits) }
    /// May be in the value of a field: no control but the tab.
    var isFieldText: Bool { self >= 0x20 && self != 0x7F || self == .tab }
    /// May be in a target: no space, no control, and no fragment.
    var isTarget: Bool { self > 0x20 && self != 0x7F && self != UInt8(ascii: "#") }
    var isDigit: Bool { self &- UInt8(ascii: "0") < 10 }
    var isOptionalSpace: Bool { self == .space || self == .tab }

    /// A letter in lower case; other bytes as they are.
    var lowercased: UInt8 { self &- UInt8(ascii: "A") < 26 ? self | 0x20 : self }

    /// The value of a hexadecimal digit.
    var hexadecimalValue: UInt8? {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): self - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): self - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): self - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

extension UnsafeRawBufferPointer {
    /// The part from `lower` to before `upper`.
    func part(_ lower: Int, _ upper: Int) -> UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: self[lower..<upper]) }

    /// Without spaces and tabs at both ends.
    var trimmed: UnsafeRawBufferPointer {
        var (first, last) = (0, count)
        while first < last, self[first].isOptionalSpace { first += 1 }
        while last > first, self[last - 1].isOptionalSpace { last -= 1 }
        return part(first, last)
    }

    /// Whether it is `text`, which is in lower case, in any case.
    func equals(_ text: StaticString) -> Bool {
        guard count == text.utf8CodeUnitCount else { return false }
        for index in 0..<count where self[index].lowercased != text.utf8Start[index] { return false }
        return true
    }

    /// Calls `body` with each element of a list with commas, trimmed; empty ones, too.
    func forEachListElement(_ body: (UnsafeRawBufferPointer) -> Void) {
        var start = 0
        for index in 0...count where index == count || self[index] == .comma {
            body(part(start, index).trimmed)
            start = index + 1
        }
    }

    /// Whether it is a host with or without a port.
    var isAuthority: Bool {
        guard allSatisfy(\.isAuthority) else { return false }
        // An address of IPv6 has its colons in brackets.
        var rest = self
        if first == UInt8(ascii: "[") {
            guard let end = firstIndex(of: UInt8(ascii: "]")) else { return false }
            let address = part(1, end)
            if address.isEmpty || !address.allSatisfy({ $0.hexadecimalValue != nil || $0 == .colon || $0 == UInt8(ascii: ".") }) {
                return false
            }
            rest = part(end + 1, count)
            if !rest.isEmpty && rest[0] != .colon { return false }
        } else if first == .colon {
            return false
        }
        guard !rest.contains(where: { $0 == UInt8(ascii: "[") || $0 == UInt8(ascii: "]") }) else { return false }
        guard let colon = rest.firstIndex(of: .colon) else { return true }
        return rest[(colon + 1)...].allSatisfy(\.isDigit)
    }
}

#endif
