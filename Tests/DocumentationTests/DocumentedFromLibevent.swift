// The program of docs/from-libevent.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Passes on what `input` has, until it ends, until it is silent for `patience`, or until SIGTERM.
func passOn(_ input: Int32, patience: Duration, _ body: @escaping @Sendable ([UInt8]) -> Void) throws {
    let loop = RunLoop.current
    let idle = RunLoop.Timer.onDemand { _ in loop.stop() }
    idle.nextFire = loop.clock.now + patience
    let readable = try RunLoop.DescriptorSource(descriptor: input, events: .read) { source, _ in
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = read(source.descriptor, &buffer, buffer.count)
        guard count > 0 else { return loop.stop() }
        body(Array(buffer[..<count]))
        idle.nextFire = loop.clock.now + patience
    }
    let terminate = try RunLoop.SignalSource(signal: SIGTERM) { _, _ in loop.stop() }
    loop.add(idle)
    loop.add(readable)
    loop.add(terminate)
    loop.run()
    idle.invalidate()
    readable.invalidate()
    terminate.invalidate()
}

@Suite struct DocumentedFromLibevent {
    @Test func `bytes are passed on until the input is silent`() throws {
        try onFreshThread { loop in
            let clock = RunLoop.ManualClock(autoAdvance: true)
            loop.use(clock)
            let pipe = Pipe()
            pipe.write("one")
            let received = Box("")
            try passOn(pipe.readEnd, patience: .seconds(5)) { received.value += String(decoding: $0, as: UTF8.self) }
            #expect(received.value == "one")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 5_000_000_000))
        }
    }

    @Test func `bytes are passed on until the input ends`() throws {
        try onFreshThread { loop in
            let clock = RunLoop.ManualClock(autoAdvance: true)
            loop.use(clock)
            var ends: [Int32] = [-1, -1]
            pipe(&ends)
            write(ends[1], "two", 3)
            close(ends[1])
            defer { close(ends[0]) }
            let received = Box("")
            try passOn(ends[0], patience: .seconds(5)) { received.value += String(decoding: $0, as: UTF8.self) }
            #expect(received.value == "two")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }
}
