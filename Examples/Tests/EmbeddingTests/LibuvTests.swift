// The run loop inside libuv's, and libuv's inside the run loop (docs/embedding.md).

import CLibuv
import Embedding
import EventLoop
import TestSupport
import Testing

/// A libuv loop for a test. On one thread.
private final class UVLoop {
    let pointer = UnsafeMutablePointer<uv_loop_t>.allocate(capacity: 1)

    init() { precondition(uv_loop_init(pointer) == 0) }

    /// After everything in the loop was closed.
    deinit {
        while uv_run(pointer, UV_RUN_NOWAIT) != 0 {}  // ends: closed handles are called once
        precondition(uv_loop_close(pointer) == 0, "a handle is left open")
        pointer.deallocate()
    }
}

/// A timer of libuv's. Close it before the loop ends.
private final class UVTimer {
    private let handle = UnsafeMutablePointer<uv_timer_t>.allocate(capacity: 1)
    private let body: () -> Void

    init(_ loop: UVLoop, _ milliseconds: UInt64, repeats: Bool = false, _ body: @escaping () -> Void) {
        self.body = body
        uv_timer_init(loop.pointer, handle)
        handle.pointee.data = Unmanaged.passUnretained(self).toOpaque()
        uv_timer_start(
            handle, { Unmanaged<UVTimer>.fromOpaque($0!.pointee.data).takeUnretainedValue().body() }, milliseconds,
            repeats ? milliseconds : 0)
    }

    deinit {
        uv_timer_stop(handle)
        handle.withMemoryRebound(to: uv_handle_t.self, capacity: 1) {
            uv_close($0) { $0!.withMemoryRebound(to: uv_timer_t.self, capacity: 1) { $0.deallocate() } }
        }
    }
}

@Suite(.bounded) struct LibuvHostTests {
    @Test func `libuv's loop serves timers, posts, sources and actors of the run loop`() throws {
        try onFreshThread { loop in
            let uv = UVLoop()
            let trace = Trace()
            do {
                let host = try LibuvHost(loop, in: uv.pointer)
                let pipe = Pipe()
                loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add(pipe.readAll()) })
                loop.add(RunLoop.Timer(after: .milliseconds(10)) { _ in trace.add("timer") })
                let poster = plainThread {
                    loop.perform { trace.add("post") }
                    pipe.write("pipe")
                }
                let worker = LoopWorker(loop)
                Task(executorPreference: loop) { await worker.add("job", to: trace) }  // not on the pool, whose threads the tests block
                try run(uv, "all of it") { trace.list.count == 4 }
                #expect(trace.list.sorted() == ["job", "pipe", "post", "timer"])
                try poster.join()
                withExtendedLifetime(host) {}
            }
        }
    }

    @Test func `an idle run loop does not wake libuv`() throws {
        try onFreshThread { loop in
            let uv = UVLoop()
            let trace = Trace()
            do {
                let host = try LibuvHost(loop, in: uv.pointer)
                loop.addIdleSource()
                for _ in 0..<3 { uv_run(uv.pointer, UV_RUN_NOWAIT) }
                let passes = loop.statistics.passes
                let timer = UVTimer(uv, 100) { trace.add("over") }
                while trace.list.isEmpty { uv_run(uv.pointer, UV_RUN_ONCE) }  // ends: with the timer
                #expect(loop.statistics.passes == passes)
                withExtendedLifetime((host, timer)) {}
            }
        }
    }

    /// Runs a libuv loop until `condition` holds.
    private func run(_ uv: UVLoop, _ what: String, _ location: SourceLocation = #_sourceLocation, _ condition: () -> Bool) throws {
        let end = ContinuousClock.now + patience
        let bound = UVTimer(uv, 1_000, repeats: true) {}
        while !condition() {  // ends: at the bound
            uv_run(uv.pointer, UV_RUN_ONCE)
            if ContinuousClock.now > end { throw WaitedTooLong(for: what, location) }
        }
        withExtendedLifetime(bound) {}
    }
}

@Suite(.bounded) struct LibuvGuestTests {
    @Test func `timers and async handles of libuv are called by the run loop`() throws {
        try onFreshThread { loop in
            let uv = UVLoop()
            let trace = Trace()
            do {
                let guest = try LibuvGuest(uv.pointer)
                loop.add(guest.source)
                let timer = UVTimer(uv, 5, repeats: true) { trace.add("timer") }
                try run(loop, "three timers") { trace.list.count >= 3 }
                withExtendedLifetime((guest, timer)) {}
            }
        }
    }

    @Test func `a watcher that is started outside libuv's run is served, and so is one that a callback starts`() throws {
        try onFreshThread { loop in
            let uv = UVLoop()
            let trace = Trace()
            do {
                let guest = try LibuvGuest(uv.pointer)
                loop.add(guest.source)
                let pipes = [Pipe(), Pipe()]
                var second: UVPoll?
                let first = UVPoll(uv, pipes[0].readEnd) {
                    trace.add(pipes[0].readAll())
                    second = UVPoll(uv, pipes[1].readEnd) { trace.add(pipes[1].readAll()) }
                    pipes[1].write("second")
                }
                let writer = plainThread {
                    try waitUntilAsleep(loop)
                    pipes[0].write("first")
                }
                try run(loop, "both") { trace.list.count == 2 }
                try writer.join()
                #expect(trace.description == "first second")
                withExtendedLifetime((guest, first, second)) {}
            }
        }
    }

    @Test func `libuv is silent while another mode runs, and an idle loop of libuv's costs nothing`() throws {
        try onFreshThread { loop in
            let uv = UVLoop()
            let trace = Trace()
            do {
                let guest = try LibuvGuest(uv.pointer)
                loop.add(guest.source)
                let pipe = Pipe()
                let poll = UVPoll(uv, pipe.readEnd) { trace.add(pipe.readAll()) }
                loop.addIdleSource(forMode: "other")
                pipe.write("a")
                _ = loop.run(mode: "other", for: .milliseconds(10))
                #expect(trace.description == "")
                try run(loop, "the poll handle") { trace.description == "a" }
                _ = loop.run(for: .milliseconds(1))
                let passes = loop.statistics.passes
                _ = loop.run(for: .milliseconds(100))
                #expect(loop.statistics.passes - passes <= 2)
                withExtendedLifetime((guest, poll)) {}
            }
        }
    }

    private func run(_ loop: RunLoop, _ what: String, _ location: SourceLocation = #_sourceLocation, _ condition: () -> Bool) throws {
        while !condition() {  // ends: the run has a bound
            if loop.run(for: patience, returnAfterSourceHandled: true) == .timedOut { throw WaitedTooLong(for: what, location) }
        }
    }
}

/// A poll handle of libuv's.
private final class UVPoll {
    private let handle = UnsafeMutablePointer<uv_poll_t>.allocate(capacity: 1)
    private let body: () -> Void

    init(_ loop: UVLoop, _ descriptor: Int32, _ body: @escaping () -> Void) {
        self.body = body
        uv_poll_init(loop.pointer, handle, descriptor)
        handle.pointee.data = Unmanaged.passUnretained(self).toOpaque()
        uv_poll_start(handle, Int32(UV_READABLE.rawValue)) { handle, _, _ in
            Unmanaged<UVPoll>.fromOpaque(handle!.pointee.data).takeUnretainedValue().body()
        }
    }

    deinit {
        uv_poll_stop(handle)
        handle.withMemoryRebound(to: uv_handle_t.self, capacity: 1) {
            uv_close($0) { $0!.withMemoryRebound(to: uv_poll_t.self, capacity: 1) { $0.deallocate() } }
        }
    }
}

private actor LoopWorker {
    private let loop: RunLoop
    init(_ loop: RunLoop) { self.loop = loop }
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    func add(_ word: String, to trace: Trace) { trace.add(word) }
}
