// A GLib context for a test, and what a test adds to it.

import CGLib
import EventLoop
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#endif

/// A main context of a test's own. On one thread.
final class GLibContext {
    let pointer: OpaquePointer = g_main_context_new()

    init() { g_main_context_push_thread_default(pointer) }

    deinit {
        g_main_context_pop_thread_default(pointer)
        g_main_context_unref(pointer)
    }

    /// Dispatches what is ready; false if nothing was.
    func iterate() -> Bool { g_main_context_iteration(pointer, 0) != 0 }

    func iterateBlocking() { g_main_context_iteration(pointer, 1) }

    /// Runs the context until `condition` holds. A timeout of GLib's bounds the wait.
    func iterate(_ what: String, _ location: SourceLocation = #_sourceLocation, until condition: () -> Bool) throws {
        let end = ContinuousClock.now + patience
        // Wakes the context now and then, so that the bound is noticed.
        let bound = addTimeout(1_000) {}
        defer { bound.remove() }
        while !condition() {  // ends: at the bound
            iterateBlocking()
            if ContinuousClock.now > end { throw WaitedTooLong(for: what, location) }
        }
    }

    func addTimeout(_ milliseconds: UInt32, _ body: @escaping () -> Void) -> GLibSource {
        GLibSource(g_timeout_source_new(milliseconds), pointer, body)
    }

    func addIdle(_ body: @escaping () -> Void) -> GLibSource { GLibSource(g_idle_source_new(), pointer, body) }
}

/// A GLib source that calls a closure until it is removed.
final class GLibSource {
    private let source: UnsafeMutablePointer<GSource>
    private let body: () -> Void

    fileprivate init(_ source: UnsafeMutablePointer<GSource>?, _ context: OpaquePointer, _ body: @escaping () -> Void) {
        self.source = source!
        self.body = body
        g_source_set_callback(
            source,
            {
                Unmanaged<GLibSource>.fromOpaque($0!).takeUnretainedValue().body()
                return 1
            }, Unmanaged.passRetained(self).toOpaque(), { Unmanaged<GLibSource>.fromOpaque($0!).release() })
        g_source_attach(source, context)
    }

    deinit { g_source_unref(source) }

    func remove() { g_source_destroy(source) }
}

actor Worker {
    private let loop: RunLoop
    init(_ loop: RunLoop) { self.loop = loop }
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    func add(_ word: String, to trace: Trace) { trace.add(word) }
}
