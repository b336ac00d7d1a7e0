package import CPlatform
internal import EventLoopLibC

extension RunLoop {
    /// The address of a stream socket.
    ///
    /// Hosts are numeric (`127.0.0.1`, `::1`); names are not resolved. An IPv6 host may name its interface (`fe80::1%eth0`, or `%` and a number). On
    /// port 0 a listening socket gets a port from the kernel. An IPv4 peer of a socket that listens on `::` has an address like `::ffff:127.0.0.1`.
    ///
    /// A Unix path has at most 107 bytes on Linux and 103 on macOS, and no zero byte. A path that the kernel reports is read as UTF-8, and what is
    /// not UTF-8 in it is replaced; so such a peer cannot be answered by its address. The path of a client is usually empty. On Linux a path that
    /// begins with a zero byte is an abstract name, which is in no file system and exists as long as its socket.
    public enum SocketAddress: Sendable, Hashable, CustomStringConvertible {
        /// An IPv4 address in dotted decimals, and a port.
        case ipv4(host: String, port: UInt16)
        /// An IPv6 address, perhaps with an interface, and a port.
        case ipv6(host: String, port: UInt16)
        /// A path in the file system.
        case unix(path: String)

        public var description: String {
            switch self {
            case .ipv4(let host, let port): "\(host):\(port)"
            case .ipv6(let host, let port): "[\(host)]:\(port)"
            case .unix(let path): path.utf8.first == 0 ? "@" + path.dropFirst() : path
            }
        }

        /// Whether the text is the same to the byte: the kernel knows two files whose names differ only in how a letter is composed.
        public static func == (first: Self, second: Self) -> Bool {
            switch (first, second) {
            case (.ipv4(let host, let port), .ipv4(let otherHost, let otherPort)),
                (.ipv6(let host, let port), .ipv6(let otherHost, let otherPort)):
                port == otherPort && host.utf8.elementsEqual(otherHost.utf8)
            case (.unix(let path), .unix(let otherPath)): path.utf8.elementsEqual(otherPath.utf8)
            default: false
            }
        }
    }
}

extension RunLoop.SocketAddress {
    /// The address that the socket is bound to, with its actual port. Nil if it is no IPv4, IPv6 or Unix socket. Thread-safe. See `getsockname(2)`.
    public init?(localOf descriptor: Int32) {
        var native = cplatform_address()
        guard cplatform_local_address(descriptor, &native) == 0 else { return nil }
        self.init(native)
    }

    /// The address of the socket's peer. Nil if the socket is not connected, or is no IPv4, IPv6 or Unix socket. Thread-safe. See `getpeername(2)`.
    public init?(peerOf descriptor: Int32) {
        var native = cplatform_address()
        guard cplatform_peer_address(descriptor, &native) == 0 else { return nil }
        self.init(native)
    }

    /// The kernel's form of the address.
    package func native() throws(RunLoop.SourceError) -> cplatform_address {
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

    /// Makes a stream socket for this address, whose form for the kernel is `native`.
    func makeSocket(_ native: cplatform_address) throws(RunLoop.SourceError) -> Int32 {
        var native = native
        let descriptor = cplatform_make_socket(&native)
        let code = errno
        if descriptor < 0 { throw .system(operation: "socket for \(self)", errno: code) }
        return descriptor
    }

    /// Nil if the library does not know this kind of address.
    package init?(_ native: cplatform_address) {
        var native = native
        switch Int(cplatform_address_kind(&native)) {
        case CPLATFORM_IPV4: self = .ipv4(host: Self.host(of: &native), port: cplatform_address_port(&native))
        case CPLATFORM_IPV6: self = .ipv6(host: Self.host(of: &native), port: cplatform_address_port(&native))
        case CPLATFORM_UNIX:
            let path = withUnsafePointer(to: &native) { native in
                var length: UInt32 = 0
                let bytes = cplatform_address_path(native, &length)
                return String(decoding: UnsafeRawBufferPointer(start: bytes, count: Int(length)), as: UTF8.self)
            }
            self = .unix(path: path)
        default: return nil
        }
    }

    private static func host(of native: inout cplatform_address) -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(CPLATFORM_HOST_SIZE)) { text in
            cplatform_address_host(&native, text.baseAddress!)  // the capacity is not zero
            return String(cString: text.baseAddress!)
        }
    }
}
