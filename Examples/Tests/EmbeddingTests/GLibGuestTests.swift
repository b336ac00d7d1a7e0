// GLib's loop inside the run loop (docs/embedding.md).

import CGLib
import Embedding
import EventLoop
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#endif

/// A GLib context that the thread's run loop drives in the default mode.
private func withGuest(_ body: @escaping @Sendable (RunLoop, GLibContext, Trace) throws -> Void) throws {
    try onFreshThread { loop in
        let context = GLibContext()
        let guest = try GLibGuest(context.pointer)
        loop.add(guest.source)
        try body(loop, context, Trace())
        withExtendedLifetime(guest) {}
    }
}

private func runUntil(_ loop: RunLoop, _ what: String, _ location: SourceLocation = #_sourceLocation, _ condition: () -> Bool) throws {
    while !condition() {  // ends: the run has a bound
        if loop.run(for: patience, returnAfterSourceHandled: true) == .timedOut { throw WaitedTooLong(for: what, location) }
    }
}

@Suite(.bounded) struct GLibGuestTests {
    @Test func `timeouts and idle callbacks of GLib are called by the run loop`() throws {
        try withGuest { loop, context, trace in
            let timeout = context.addTimeout(5) { trace.add("timeout") }
            try runUntil(loop, "three timeouts") { trace.list.count >= 3 }
            timeout.remove()
            _ = trace.take()
            var left = 3
            var idle: GLibSource?
            idle = context.addIdle {
                trace.add("idle")
                left -= 1
                if left == 0 { idle?.remove() }
            }
            try runUntil(loop, "idle callbacks") { trace.list.count == 3 }
            _ = loop.run(for: .milliseconds(5))
            #expect(trace.take() == "idle idle idle")
            withExtendedLifetime(idle) {}
        }
    }

    @Test func `a source that another thread attaches, and a descriptor that becomes readable, wake the run loop`() throws {
        try withGuest { loop, context, trace in
            nonisolated(unsafe) let pointer = context.pointer  // SAFETY: GLib's contexts are thread-safe
            try runUntilAsleepThen(loop) {
                g_main_context_invoke(
                    pointer,
                    {
                        Unmanaged<Trace>.fromOpaque($0!).takeUnretainedValue().add("invoked"); return 0
                    },
                    Unmanaged.passUnretained(trace).toOpaque())
            }
            #expect(trace.take() == "invoked")
        }
    }

    /// Runs the loop until it has called the guest, which `body` causes on another thread.
    private func runUntilAsleepThen(_ loop: RunLoop, _ body: @escaping @Sendable () -> Void) throws {
        let other = plainThread {
            try waitUntilAsleep(loop)
            body()
        }
        try runUntil(loop, "the guest") { loop.statistics.sourcesHandled > 0 }
        try other.join()
    }

    @Test func `GLib is silent while the run loop runs another mode, and costs nothing while it is idle`() throws {
        try withGuest { loop, context, trace in
            let timeout = context.addTimeout(1) { trace.add("timeout") }
            loop.addIdleSource(forMode: "other")
            _ = loop.run(mode: "other", for: .milliseconds(20))
            #expect(trace.take() == "")
            try runUntil(loop, "a timeout") { !trace.list.isEmpty }
            timeout.remove()
            _ = loop.run(for: .milliseconds(1))
            let passes = loop.statistics.passes
            _ = loop.run(for: .milliseconds(100))
            #expect(loop.statistics.passes - passes <= 2, "woken by an idle guest")
        }
    }

    @Test func `a busy context starves neither timers nor posts of the run loop`() throws {
        try withGuest { loop, context, trace in
            let busy = context.addIdle {}
            loop.add(RunLoop.Timer(after: .milliseconds(5)) { _ in trace.add("timer") })
            let poster = plainThread { loop.perform { trace.add("post") } }
            try runUntil(loop, "both") { trace.list.count == 2 }
            try poster.join()
            busy.remove()
        }
    }

    @Test func `a run nested in a callback of GLib's serves the context, too`() throws {
        try withGuest { loop, context, trace in
            var timeout: GLibSource?
            timeout = context.addTimeout(1) {
                timeout?.remove()
                let inner = context.addTimeout(1) {
                    trace.add("inner")
                    loop.stop()
                }
                #expect(loop.run(for: patience) == .stopped)
                inner.remove()
                trace.add("end")
            }
            try runUntil(loop, "the end") { trace.list.last == "end" }
            #expect(trace.list.first == "inner")
            withExtendedLifetime(timeout) {}
        }
    }

    @Test func `the run loop hosts GLib's while a libevent program hosts the run loop`() throws {
        // Three deep: this test's poll, the run loop, GLib.
        try onFreshThread { loop in
            let trace = Trace()
            let context = GLibContext()
            let guest = try GLibGuest(context.pointer)
            loop.add(guest.source)
            let hosted = try loop.hosted()
            defer { hosted.invalidate() }
            let timeout = context.addTimeout(5) { trace.add("timeout") }
            loop.wakeUp()
            while trace.list.count < 3 {  // ends: the wait has a bound
                try waitUntilReadable(hosted.descriptor, "GLib's timeouts")
                hosted.step()
            }
            timeout.remove()
            withExtendedLifetime(guest) {}
        }
    }
}
