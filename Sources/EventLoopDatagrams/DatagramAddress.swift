// Addresses between the program's form and the kernel's.

internal import CDatagrams
internal import CPlatform
internal import EventLoop

extension RunLoop.SocketAddress {
    var kind: Int32 {
        switch self {
        case .ipv4: Int32(CPLATFORM_IPV4)
        case .ipv6: Int32(CPLATFORM_IPV6)
        case .unix: Int32(CPLATFORM_UNIX)
        }
    }
}

/// One address in both forms. A peer that sent the last datagram often sends the next one, and gets the answer.
struct KnownAddress {
    private var native = cplatform_address()
    private var address: RunLoop.SocketAddress?

    mutating func address(of native: UnsafePointer<cplatform_address>) -> RunLoop.SocketAddress {
        if let address, withUnsafePointer(to: self.native, { cdatagrams_equal($0, native) }) { return address }
        // A Unix socket without a name has no address.
        let new = RunLoop.SocketAddress(native.pointee) ?? .unix(path: "")
        (self.native, address) = (native.pointee, new)
        return new
    }

    mutating func native(of address: RunLoop.SocketAddress) throws(RunLoop.SourceError) -> cplatform_address {
        if self.address == address { return native }
        let new = try address.native()
        (native, self.address) = (new, address)
        return new
    }
}
