// Where a stream socket listens or connects to.

internal import CPlatform

extension RunLoop {
    /// The address of a stream socket.
    ///
    /// Hosts are numeric (`127.0.0.1`, `::1`); names are not looked up here. An IPv6 host may name its interface (`fe80::1%eth0`, or
    /// `%` and a number). Port 0 asks the kernel for one when a socket listens. An IPv4 peer of a socket that listens on `::` has the kernel's
    /// form of its address, `::ffff:127.0.0.1`.
    ///
    /// A Unix path may be as long as the platform takes (107 bytes on Linux, 103 on macOS) and has no zero byte; a client's is usually empty. On
    /// Linux a path that begins with a zero byte is an abstract name: it stands in no file system, and goes with its socket.
    public enum SocketAddress: Sendable, Hashable, CustomStringConvertible {
        case ipv4(host: String, port: UInt16)
        case ipv6(host: String, port: UInt16)
        case unix(path: String)

        public var description: String {
            switch self {
            case .ipv4(let host, let port): "\(host):\(port)"
            case .ipv6(let host, let port): "[\(host)]:\(port)"
            case .unix(let path): path.utf8.first == 0 ? "@" + path.dropFirst() : path
            }
        }
    }
}

extension RunLoop.SocketAddress {
    /// As the kernel takes it.
    func native() throws(RunLoop.SourceError) -> cplatform_address {
        var native = cplatform_address()
        let isGood =
            switch self {
            case .ipv4(let host, let port): !host.utf8.contains(0) && cplatform_make_ipv4(&native, host, port)
            case .ipv6(let host, let port): !host.utf8.contains(0) && cplatform_make_ipv6(&native, host, port)
            case .unix(let path): cplatform_make_unix(&native, path, UInt32(clamping: path.utf8.count))
            }
        if !isGood { throw .badAddress(description) }
        return native
    }

    /// Nil for a kind of address that the library does not know.
    init?(_ native: cplatform_address) {
        var native = native
        switch Int(cplatform_address_kind(&native)) {
        case CPLATFORM_IPV4: self = .ipv4(host: Self.host(of: &native), port: cplatform_address_port(&native))
        case CPLATFORM_IPV6: self = .ipv6(host: Self.host(of: &native), port: cplatform_address_port(&native))
        case CPLATFORM_UNIX:
            let path = withUnsafePointer(to: &native) { native in
                var length: UInt32 = 0
                let bytes = cplatform_address_path(native, &length)
                return UnsafeRawBufferPointer(start: bytes, count: Int(length)).withMemoryRebound(to: UInt8.self) {
                    String(decoding: $0, as: UTF8.self)
                }
            }
            self = .unix(path: path)
        default: return nil
        }
    }

    private static func host(of native: inout cplatform_address) -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(CPLATFORM_HOST_SIZE)) { text in
            cplatform_address_host(&native, text.baseAddress!)  // it has a capacity
            return String(cString: text.baseAddress!)
        }
    }
}
