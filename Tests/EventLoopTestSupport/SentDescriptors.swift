// Descriptors that are sent over Unix sockets.

#if os(Linux)

import Glibc

/// Sends bytes with descriptors. 0, or an errno.
public func sendDescriptors(_ passed: [Int32], with bytes: [UInt8], over socket: Int32, flags: Int32 = 0) -> Int32 {
    // struct cmsghdr: a length of eight bytes, level and type of four each; then the descriptors, up to a multiple of eight.
    var control = [UInt8](repeating: 0, count: 16 + (4 * passed.count + 7) / 8 * 8)
    return control.withUnsafeMutableBytes { raw in
        raw.storeBytes(of: 16 + 4 * passed.count, toByteOffset: 0, as: Int.self)
        raw.storeBytes(of: SOL_SOCKET, toByteOffset: 8, as: Int32.self)
        raw.storeBytes(of: Int32(SCM_RIGHTS), toByteOffset: 12, as: Int32.self)
        for (index, one) in passed.enumerated() { raw.storeBytes(of: one, toByteOffset: 16 + 4 * index, as: Int32.self) }
        return bytes.withUnsafeBytes { data in
            var part = iovec(iov_base: UnsafeMutableRawPointer(mutating: data.baseAddress), iov_len: data.count)
            return withUnsafeMutablePointer(to: &part) { part in
                var message = msghdr()
                message.msg_iov = part
                message.msg_iovlen = 1
                message.msg_control = raw.baseAddress
                message.msg_controllen = raw.count
                return sendmsg(socket, &message, Int32(MSG_NOSIGNAL) | flags) < 0 ? errno : 0
            }
        }
    }
}

/// Whether the kernel lets a Unix socket refuse descriptors (SO_PASSRIGHTS, Linux 6.16).
public func kernelRefusesDescriptors() -> Bool {
    let (one, other) = connectedSockets()
    defer {
        close(one)
        close(other)
    }
    var (value, length) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
    return getsockopt(one, SOL_SOCKET, 83, &value, &length) == 0
}
#endif
