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

    @Test func `a descriptor that cannot become ready is refused`() throws {
        let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        #expect(throws: RunLoop.SourceError.notPollable(descriptor)) {
            _ = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }
        }
    }
}
