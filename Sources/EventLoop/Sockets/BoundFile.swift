package import CPlatform
internal import EventLoopLibC

/// The file of a Unix socket, which `bind` has created and the end of the socket removes. By its absolute path: the program may change its directory.
package struct BoundFile: Sendable {
    private let path: String
    private let device: UInt64
    private let inode: UInt64
    private let mark = ProcessMark()

    /// Nil if there is no file.
    package init?(_ path: String?) {
        var (device, inode) = (UInt64(0), UInt64(0))
        guard let path, cplatform_bound_file(path, &device, &inode) == 0 else { return nil }
        (self.path, self.device, self.inode) = (path, device, inode)
    }

    /// While the socket is open, so that no other file can have its inode. Leaves alone a file that has replaced it, and in a child the parent's.
    package func remove() { if mark.isOurs { cplatform_unlink_bound_file(path, device, inode) } }

    /// The path of a file, from the root on; nil for other addresses, and for abstract names, which begin with a zero byte.
    package static func absolutePath(of address: RunLoop.SocketAddress) -> String? {
        guard case .unix(let path) = address, let first = path.utf8.first, first != 0 else { return nil }
        if first == UInt8(ascii: "/") { return path }
        guard let directory = getcwd(nil, 0) else { return path }
        defer { free(directory) }
        return String(cString: directory) + "/" + path
    }
}

extension RunLoop.SocketAddress {
    /// The kernel's form, with the path from the root on, so that it means the same file in any directory. A path that would be too long stays.
    package func nativeFromRoot() throws(RunLoop.SourceError) -> cplatform_address {
        if let path = BoundFile.absolutePath(of: self), let native = try? Self.unix(path: path).native() { return native }
        return try native()
    }
}
