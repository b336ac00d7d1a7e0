// The code of docs/descriptors.md, compiled and run.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Reads what comes on a descriptor, until its other end is closed. Closes the descriptor when the source ends.
func watch(
    _ descriptor: Int32, on loop: RunLoop, received: @escaping @Sendable (ArraySlice<UInt8>) -> Void
) throws -> RunLoop.DescriptorSource {
    let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read, label: "input") { source, _ in
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = read(source.descriptor, &buffer, buffer.count)
        if count > 0 {
            received(buffer[..<count])
        } else if count == 0 || errno != EAGAIN && errno != EINTR {
            source.invalidate()
        }
    }
    source.onInvalidation { close($0.descriptor) }
    loop.add(source)
    return source
}

/// Writes bytes as the descriptor takes them. On the loop's thread.
func send(_ bytes: [UInt8], to descriptor: Int32, on loop: RunLoop, whenDone: @escaping @Sendable (Int32) -> Void) throws {
    let rest = LoopBound(bytes[...])
    let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: .write, label: "output") { source, _ in
        let count = rest.value.withUnsafeBytes { write(source.descriptor, $0.baseAddress, $0.count) }
        if count > 0 { rest.value.removeFirst(count) }
        // Nothing left, or an error. A source that kept `.write` would be called without end.
        if rest.value.isEmpty || count < 0 && errno != EAGAIN && errno != EINTR { source.invalidate() }
    }
    source.onInvalidation { whenDone($0.descriptor) }
    loop.add(source)
}

#if os(Linux)
/// Reports the name of each file in a folder that a writer has closed, or that was moved there.
func watchFolder(_ folder: String, on loop: RunLoop, changed: @escaping @Sendable (String) -> Void) throws -> RunLoop.DescriptorSource {
    let inotify = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
    guard inotify >= 0 else { throw RunLoop.SourceError.system(operation: "inotify_init1", errno: errno) }
    let source = try RunLoop.DescriptorSource(descriptor: inotify, events: .read, label: folder) { source, _ in
        var buffer = [UInt8](repeating: 0, count: 16_384)
        let count = read(source.descriptor, &buffer, buffer.count)
        var rest = buffer[..<max(count, 0)]
        while !rest.isEmpty {  // the kernel writes whole events: a header, then `len` bytes with the name and zeros
            let event = rest.withUnsafeBytes { $0.loadUnaligned(as: inotify_event.self) }
            let name = rest.dropFirst(MemoryLayout<inotify_event>.size).prefix(Int(event.len)).prefix { $0 != 0 }
            rest = rest.dropFirst(MemoryLayout<inotify_event>.size + Int(event.len))
            if !name.isEmpty { changed(String(decoding: name, as: UTF8.self)) }
        }
    }
    source.onInvalidation { close($0.descriptor) }
    guard inotify_add_watch(inotify, folder, UInt32(IN_CLOSE_WRITE) | UInt32(IN_MOVED_TO)) >= 0 else {
        let error = RunLoop.SourceError.system(operation: "inotify_add_watch \(folder)", errno: errno)
        source.invalidate()
        throw error
    }
    loop.add(source)
    return source
}

/// Calls `pressed` when tasks of this machine have waited for memory for 150 ms within 2 s, at most once in that time.
func watchMemoryPressure(on loop: RunLoop, pressed: @escaping @Sendable () -> Void) throws -> RunLoop.DescriptorSource {
    let file = open("/proc/pressure/memory", O_RDWR | O_NONBLOCK | O_CLOEXEC)
    guard file >= 0 else { throw RunLoop.SourceError.system(operation: "open /proc/pressure/memory", errno: errno) }
    let trigger = "some 150000 2000000"
    guard write(file, trigger, trigger.utf8.count + 1) > 0 else {
        defer { close(file) }
        throw RunLoop.SourceError.system(operation: "write a pressure trigger", errno: errno)
    }
    let source = try RunLoop.DescriptorSource(descriptor: file, events: .priority, label: "memory pressure") { _, _ in pressed() }
    source.onInvalidation { close($0.descriptor) }
    loop.add(source)
    return source
}
#endif

@Suite struct DocumentedDescriptors {
    @Test func `bytes go from one descriptor to another`() throws {
        try onFreshThread { loop in
            let received = Box(0)
            var ends: [Int32] = [-1, -1]
            #expect(closeOnExecPipe(&ends))
            for end in ends { #expect(fcntl(end, F_SETFL, O_NONBLOCK) == 0) }
            let source = try watch(ends[0], on: loop) { bytes in received.change { $0 += bytes.count } }
            try send([UInt8](repeating: 7, count: 300_000), to: ends[1], on: loop) { close($0) }
            #expect(loop.run(for: patience) == .finished)
            #expect(received.value == 300_000 && !source.isValid && source.failure == nil)
        }
    }

    @Test func `a source pauses without leaving its modes`() throws {
        try onFreshThread { loop in
            let (pipe, calls) = (Pipe(), Counter())
            pipe.write()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in calls.increment() }
            loop.add(source)

            source.events = []
            #expect(loop.run(for: .zero) == .timedOut && calls.value == 0)

            source.events = []  // paused: silent, but still in its modes
            source.events = .read  // goes on

            #expect(loop.run(for: .zero) != .finished && calls.value == 1)
            source.invalidate()
        }
    }

    #if os(Linux)
    @Test func `the names of files that are written or moved into a folder are reported`() throws {
        let folder = makeTemporaryDirectory()
        defer { removeFlatDirectory(folder) }
        try onFreshThread { loop in
            let names = Trace()
            let source = try watchFolder(folder, on: loop) { name in
                names.add(name)
                if name == "last" { loop.stop() }
            }
            for name in ["first file", ".second"] {
                let descriptor = open(folder + "/" + name, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)
                #expect(close(descriptor) == 0)
            }
            #expect(rename(folder + "/.second", folder + "/last") == 0)
            #expect(loop.run(for: patience) == .stopped)
            #expect(names.list == ["first file", ".second", "last"])
            source.invalidate()
        }
    }

    @Test func `a folder that does not exist is refused`() throws {
        try onFreshThread { loop in
            #expect(throws: RunLoop.SourceError.system(operation: "inotify_add_watch /nowhere", errno: ENOENT)) {
                _ = try watchFolder("/nowhere", on: loop) { _ in }
            }
        }
    }
    #endif

    @Test func `a descriptor that cannot become ready is refused`() throws {
        let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        #expect(throws: RunLoop.SourceError.notPollable(descriptor)) {
            _ = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }
        }
    }

    #if os(Linux)
    @Test func `memory pressure is watched where the kernel permits it`() throws {
        try onFreshThread { loop in
            do {
                let source = try watchMemoryPressure(on: loop) {}
                _ = loop.run(for: .zero)
                #expect(source.isValid)
                source.invalidate()
            } catch RunLoop.SourceError.system(let operation, let code) {
                #expect([ENOENT, EACCES, EPERM, EINVAL, EOPNOTSUPP].contains(code), "\(operation): errno \(code)")
            }
        }
    }
    #endif
}
