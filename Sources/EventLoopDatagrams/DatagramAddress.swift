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

    /// Whether the kernel has the same form of both: an IPv6 host has many spellings.
    func isSame(as other: Self) throws(RunLoop.SourceError) -> Bool {
        var (first, second) = try (native(), other.native())
        return cdatagrams_equal(&first, &second)
    }
}

/// The kernel's form of an address. An object, because the form is large and every queued datagram has one.
final class NativeAddress: Sendable {
    // SAFETY: set by init, freed by deinit, and constant between the two.
    nonisolated(unsafe) let pointer: UnsafePointer<cplatform_address>

    init(_ native: cplatform_address) {
        let pointer = UnsafeMutablePointer<cplatform_address>.allocate(capacity: 1)
        pointer.initialize(to: native)
        self.pointer = UnsafePointer(pointer)
    }

    deinit { pointer.deallocate() }
}

/// One address in both forms. A peer that sent the last datagram often sends the next one, and gets the answer.
struct KnownAddress {
    private var known: (native: NativeAddress, address: RunLoop.SocketAddress)?

    mutating func address(of native: UnsafePointer<cplatform_address>) -> RunLoop.SocketAddress {
        if let known, cdatagrams_equal(known.native.pointer, native) { return known.address }
        // A Unix socket without a name has no address.
        let new = RunLoop.SocketAddress(native.pointee) ?? .unix(path: "")
        known = (NativeAddress(native.pointee), new)
        return new
    }

    mutating func native(of address: RunLoop.SocketAddress) throws(RunLoop.SourceError) -> NativeAddress {
        if let known, known.address == address { return known.native }
        let new = NativeAddress(try address.native())
        known = (new, address)
        return new
    }
}
