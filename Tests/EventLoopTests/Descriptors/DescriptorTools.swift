// What the tests of descriptors share: sources on pipes, socket pairs, and the kernel's own account of what is watched.

import EventLoop
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A source that watches the read end of `pipe` and keeps the pipe open for as long as it has a handler.
func readSource(
    _ pipe: Pipe, trigger: RunLoop.DescriptorSource.Trigger = .level, priority: RunLoop.Priority = .default,
    _ handler: @escaping @Sendable (RunLoop.DescriptorSource) -> Void
) throws -> RunLoop.DescriptorSource {
    try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger, priority: priority) { source, _ in
        withExtendedLifetime(pipe) { handler(source) }
    }
}

/// SOCK_STREAM and SOCK_DGRAM, on Linux and on Darwin. In Glibc the names are an enumeration's, and lost to files that are compiled together
/// with one that imports Foundation; which those are is the build system's choice.
enum SocketKind {
    static let stream: Int32 = 1
    static let datagram: Int32 = 2
}

/// Two connected stream sockets, closed when they are let go of.
final class SocketPair: Sendable {
    let near: Int32
    let far: Int32
    private let isFarOpen = Box(true)

    init() {
        var ends: [Int32] = [-1, -1]
        precondition(socketpair(AF_UNIX, SocketKind.stream, 0, &ends) == 0, "socketpair: errno \(errno)")
        for end in ends {
            precondition(fcntl(end, F_SETFL, O_NONBLOCK) == 0)
            precondition(fcntl(end, F_SETFD, FD_CLOEXEC) == 0)
        }
        (near, far) = (ends[0], ends[1])
    }

    deinit {
        closeFar()
        close(near)
    }

    func sendFromFar(_ text: String) {
        let bytes = Array(text.utf8)
        precondition(write(far, bytes, bytes.count) == bytes.count)
    }

    func closeFar() {
        let isMine = isFarOpen.change { open in
            defer { open = false }
            return open
        }
        if isMine { close(far) }
    }

    /// The far end will send no more, but still reads.
    func shutDownFar() { precondition(shutdown(far, Int32(SHUT_WR)) == 0) }
}

func describe(_ events: RunLoop.DescriptorSource.Events) -> String {
    let names: [(RunLoop.DescriptorSource.Events, String)] = [(.read, "read"), (.write, "write"), (.closed, "closed")]
    return names.filter { events.contains($0.0) }.map(\.1).joined(separator: "+")
}

#if os(Linux)
/// In how many epoll sets of this process `descriptor` is watched, by the kernel's own account (proc(5), /proc/pid/fdinfo: `tfd`).
func kernelWatches(of descriptor: Int32) -> Int {
    guard let directory = opendir("/proc/self/fdinfo") else { return -1 }
    defer { closedir(directory) }
    var count = 0
    while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        guard let file = fopen("/proc/self/fdinfo/\(name)", "r") else { continue }  // another thread's, closed meanwhile
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 512)
        while fgets(&line, 512, file) != nil {
            let words = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
                .split(whereSeparator: { $0 == " " || $0 == "\t" || $0 == "\n" })
            if words.count > 1, words[0] == "tfd:", Int32(words[1]) == descriptor { count += 1 }
        }
    }
    return count
}
#endif
