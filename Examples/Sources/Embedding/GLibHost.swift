// GLib's main context drives a run loop.

import CGLib
public import EventLoop

/// A source of a GLib context that steps a run loop. On the run loop's thread, which is the one that runs the context.
public final class GLibHost {
    private let hosted: RunLoop.HostedLoop
    private let source: UnsafeMutablePointer<GSource>

    /// - Parameter context: nil for GLib's default context.
    public init(_ loop: RunLoop, mode: RunLoop.Mode = .default, context: OpaquePointer? = nil) throws(RunLoop.SourceError) {
        hosted = try loop.hosted(mode: mode)
        source = g_source_new(Self.functions, guint(MemoryLayout<GSource>.size))
        g_source_add_unix_fd(source, hosted.descriptor, G_IO_IN)
        // A handler of the run loop may run the context (a modal dialog), and the run loop is served there, too.
        g_source_set_can_recurse(source, 1)
        g_source_set_callback(
            source,
            {
                Unmanaged<GLibHost>.fromOpaque($0!).takeUnretainedValue().hosted.step()
                return 1  // G_SOURCE_CONTINUE
            }, Unmanaged.passUnretained(self).toOpaque(), nil)
        g_source_attach(source, context)
    }

    deinit {
        // GLib first: the descriptor is closed next.
        g_source_destroy(source)
        g_source_unref(source)
        hosted.invalidate()
    }

    /// For a handler that is about to run the context inside itself.
    public func step() { hosted.step() }

    // SAFETY: written once, then read by GLib.
    nonisolated(unsafe) private static let functions: UnsafeMutablePointer<GSourceFuncs> = {
        let functions = UnsafeMutablePointer<GSourceFuncs>.allocate(capacity: 1)
        functions.initialize(to: GSourceFuncs())
        functions.pointee.dispatch = { _, callback, data in callback!(data) }
        return functions
    }()
}
