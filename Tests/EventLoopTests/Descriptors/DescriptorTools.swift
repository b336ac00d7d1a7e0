// Tools for the tests of descriptors: sources on pipes, socket pairs, and the kernel's list of watched descriptors.

import CLibevent
import EventLoop
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A source that watches the read end of `pipe`. Its handler keeps the pipe open.
func readSource(
    _ pipe: Pipe, trigger: RunLoop.DescriptorSource.Trigger = .level, priority: RunLoop.Priority = .default,
    _ handler: @escaping @Sendable (RunLoop.DescriptorSource) -> Void
) throws -> RunLoop.DescriptorSource {
    try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger, priority: priority) { source, _ in
        withExtendedLifetime(pipe) { handler(source) }
    }
}

/// Adds a source that is ready once: the byte in its pipe is taken before `handler` is called.
func addReadySource(to loop: RunLoop, priority: RunLoop.Priority = .default, _ handler: @escaping @Sendable () -> Void) throws {
    let pipe = Pipe()
    pipe.write()
    loop.add(
        try readSource(pipe, priority: priority) { _ in
            pipe.readAll()
            handler()
        })
}

/// SOCK_STREAM and SOCK_DGRAM, on Linux and on Darwin. Glibc declares these names in an enumeration. They are unavailable in a file that is
/// compiled together with a file that imports Foundation, and the build system chooses which files those are.
enum SocketKind {
    static let stream: Int32 = 1
    static let datagram: Int32 = 2
}

/// Two connected stream sockets. `deinit` closes them.
final class SocketPair: Sendable {
    let near: Int32
    let far: Int32
    private let isFarOpen = Box(true)

    init() {
        (near, far) = connectedSockets()
        for end in [near, far] { precondition(fcntl(end, F_SETFL, O_NONBLOCK) == 0) }
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

    /// Closes the far end, and returns when the near end's hang-up is visible.
    func closeFarVisibly() {
        closeFar()
        waitForHangUp(of: near)
    }

    /// Shuts down sending at the far end, which can still read.
    func shutDownFar() { precondition(shutdown(far, Int32(SHUT_WR)) == 0) }
}

/// Returns when the kernel reports that the other end is closed. A child that another test starts has copies of all descriptors until it
/// executes its program, and for so long the kernel reports nothing.
func waitForHangUp(of descriptor: Int32) {
    // Asks for no event: poll(2) reports POLLHUP and POLLERR always.
    var request = pollfd(fd: descriptor, events: 0, revents: 0)
    precondition(poll(&request, 1, 60_000) == 1, "the other end of descriptor \(descriptor) is still open")
}

/// A pipe whose ends can be closed separately.
final class RawPipe: Sendable {
    let readEnd: Int32
    let writeEnd: Int32
    private let open: Box<Set<Int32>>

    init() {
        var ends: [Int32] = [-1, -1]
        precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
        for end in ends { precondition(fcntl(end, F_SETFL, O_NONBLOCK) == 0) }
        (readEnd, writeEnd) = (ends[0], ends[1])
        open = Box([ends[0], ends[1]])
    }

    /// Closes an end, and returns when the other's hang-up is visible.
    func closeReadEnd() { if closeOnce(readEnd) { waitForHangUp(of: writeEnd) } }
    func closeWriteEnd() { if closeOnce(writeEnd) { waitForHangUp(of: readEnd) } }

    private func closeOnce(_ end: Int32) -> Bool { open.change({ $0.remove(end) }) != nil && close(end) == 0 }

    deinit {
        _ = closeOnce(readEnd)
        _ = closeOnce(writeEnd)
    }
}

func describe(_ events: RunLoop.DescriptorSource.Events) -> String {
    let names: [(RunLoop.DescriptorSource.Events, String)] = [
        (.read, "read"), (.write, "write"), (.closed, "closed"), (.priority, "priority"), (.error, "error"),
    ]
    return names.filter { events.contains($0.0) }.map(\.1).joined(separator: "+")
}

#if os(Linux)
/// The number of epoll sets of this process that watch `descriptor`, as the kernel reports it (proc(5), /proc/pid/fdinfo: `tfd`).
func kernelWatches(of descriptor: Int32) -> Int {
    guard let directory = opendir("/proc/self/fdinfo") else { return -1 }
    defer { closedir(directory) }
    var count = 0
    while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        guard let file = fopen("/proc/self/fdinfo/\(name)", "r") else { continue }  // another thread has closed it meanwhile
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
