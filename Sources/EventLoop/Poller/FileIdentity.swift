internal import CPlatform
package import EventLoopLibC

/// The file behind a descriptor's number, which the kernel reuses at once. Files of the anonymous inode (eventfd, timerfd, epoll) all look alike.
package struct FileIdentity: Sendable, Equatable {
    package let inode: UInt64
    /// The kernel's numbers of devices have 32 bits.
    package let device: UInt32

    /// Nil when the descriptor is not open.
    package init?(of descriptor: Int32) {
        var status = stat()
        if fstat(descriptor, &status) != 0 { return nil }
        self.init(status)
    }

    package init(_ status: stat) {
        (device, inode) = (UInt32(truncatingIfNeeded: status.st_dev), UInt64(truncatingIfNeeded: status.st_ino))
    }

    /// The identity of a descriptor that the kernel can watch, and whether it is a file of the kernel's own, in /proc or /sys: such a file looks like
    /// a regular one, which cannot be watched. Sockets and pipes can be; for others the kernel is asked, which costs three system calls more.
    package static func pollable(_ descriptor: Int32) throws(RunLoop.SourceError) -> (identity: FileIdentity, isKernelFile: Bool) {
        var status = stat()
        if fstat(descriptor, &status) != 0 { throw .badDescriptor(descriptor) }
        let kind = status.st_mode & mode_t(S_IFMT)
        if kind != mode_t(S_IFSOCK) && kind != mode_t(S_IFIFO) {
            let code = cplatform_probe_descriptor(descriptor)
            if code != 0 { throw .refusal(toWatch: descriptor, code) }
        }
        return (FileIdentity(status), kind == mode_t(S_IFREG))
    }
}

extension RunLoop.SourceError {
    /// The kernel refuses to watch a descriptor, with this errno.
    static func refusal(toWatch descriptor: Int32, _ code: Int32) -> Self {
        switch code {
        case EBADF: .badDescriptor(descriptor)
        case EPERM: .notPollable(descriptor)
        default: .system(operation: "watching descriptor \(descriptor)", errno: code)
        }
    }
}

extension Readiness {
    /// What a descriptor is ready for now. One system call, without waiting.
    package static func now(of descriptor: Int32, wanted: Readiness) -> Readiness {
        Readiness(rawValue: cplatform_readiness(descriptor, wanted.rawValue))
    }
}
