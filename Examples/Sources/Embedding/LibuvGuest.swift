// A run loop drives libuv's loop.

public import CLibuv
public import EventLoop

/// A libuv loop as a guest of a run loop. On the run loop's thread.
public final class LibuvGuest: @unchecked Sendable {
    // SAFETY: used on the run loop's thread.

    private let uv: UnsafeMutablePointer<uv_loop_t>
    public private(set) var source: RunLoop.GuestLoop!

    /// The loop must live longer than the guest.
    public init(_ uv: UnsafeMutablePointer<uv_loop_t>) throws(RunLoop.SourceError) {
        self.uv = uv
        source = try RunLoop.GuestLoop(
            descriptor: uv_backend_fd(uv), label: "libuv", prepare: { [unowned self] in prepare() },
            dispatch: { [unowned self] in uv_run(self.uv, UV_RUN_NOWAIT) })
    }

    deinit { source?.invalidate() }

    private func prepare() -> RunLoop.Instant? {
        // Without anything to do, uv_backend_timeout says "at once".
        if uv_loop_alive(uv) == 0 { return nil }
        // libuv registers a new watcher with the kernel only inside uv_run.
        if clibuv_has_new_watchers(uv) != 0 { return .now }
        uv_update_time(uv)
        let timeout = uv_backend_timeout(uv)
        return timeout < 0 ? nil : .now.advanced(by: .milliseconds(Int(timeout)))
    }
}
