// Threads for the implementations: each run has a new thread, and with it a new run loop.

import CPerfPeers

/// C memory that handlers use.
struct OnLoop<Value>: @unchecked Sendable {
    // SAFETY: used by the measuring thread, and by others only while the measuring thread waits for them.
    let pointer: UnsafeMutablePointer<Value>
    init(_ pointer: UnsafeMutablePointer<Value>) { self.pointer = pointer }
}

/// The sample of one run; `begin` and `end` on the same thread.
struct Meter: @unchecked Sendable {
    // SAFETY: as in OnLoop.
    let sample: UnsafeMutablePointer<perf_sample>

    func begin() { perf_begin(sample) }
    func end() { perf_end(sample) }

    /// A second meter, whose result is not used.
    static func ignored() -> Meter {
        let meter = Meter(sample: .allocate(capacity: 1)).reset()
        meter.sample.pointee.is_ignored = true
        return meter
    }

    func reset() -> Meter {
        sample.initialize(to: perf_sample())
        return self
    }
}

/// Runs `body` on a new thread, and returns the sample of its meter after the thread has ended.
func measured(ops: Int, _ body: @escaping @Sendable (Meter) -> Void) -> Measurement {
    let meter = Meter(sample: .allocate(capacity: 1)).reset()
    defer { meter.sample.deallocate() }
    PlainThread { body(meter) }.join()
    return Measurement(sample: meter.sample.pointee, ops: ops)
}

/// The same for an implementation in C.
func measuredInC(ops: Int, _ body: @escaping @Sendable (UnsafeMutablePointer<perf_sample>) -> Void) -> Measurement {
    measured(ops: ops) { body($0.sample) }
}

/// A thread that must be joined.
struct PlainThread: ~Copyable {
    private let handle: UnsafeMutableRawPointer

    init(_ body: @escaping @Sendable () -> Void) {
        let box = Unmanaged.passRetained(Box(body)).toOpaque()
        handle = perf_thread_start({ Unmanaged<Box>.fromOpaque($0!).takeRetainedValue().body() }, box)
    }

    consuming func join() { perf_thread_join(handle) }

    private final class Box: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
}

/// Producers that wait for the gate, then each call `post` once with its number of posts.
struct Gang: @unchecked Sendable {
    // SAFETY: the measuring thread opens and joins it.
    private let gang: OpaquePointer
    private let box: Box

    init(producers: Int, posts: Int, _ post: @escaping @Sendable (Int) -> Void) {
        box = Box(post)
        gang = perf_gang_start(
            Int32(producers), posts, { Unmanaged<Box>.fromOpaque($0!).takeUnretainedValue().post($1) },
            Unmanaged.passUnretained(box).toOpaque())
    }

    func open() { perf_gang_open(gang) }
    func join() { withExtendedLifetime(box) { perf_gang_join(gang) } }

    private final class Box: Sendable {
        let post: @Sendable (Int) -> Void
        init(_ post: @escaping @Sendable (Int) -> Void) { self.post = post }
    }
}
