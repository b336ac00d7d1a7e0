// libuv's loop drives a run loop.

public import CLibuv
public import EventLoop

/// A poll handle of a libuv loop that steps a run loop. On the run loop's thread, which is the one that runs the libuv loop.
public final class LibuvHost {
    private let hosted: RunLoop.HostedLoop
    private let handle: UnsafeMutablePointer<uv_poll_t>

    public init(_ loop: RunLoop, mode: RunLoop.Mode = .default, in uv: UnsafeMutablePointer<uv_loop_t>) throws(RunLoop.SourceError) {
        hosted = try loop.hosted(mode: mode)
        let handle = UnsafeMutablePointer<uv_poll_t>.allocate(capacity: 1)
        let code = uv_poll_init(uv, handle, hosted.descriptor)
        if code != 0 {
            handle.deallocate()
            throw .system(operation: "uv_poll_init", errno: -code)
        }
        // Last: an object that is complete has its deinit called, also when its init throws.
        self.handle = handle
        handle.pointee.data = Unmanaged.passUnretained(self).toOpaque()
        uv_poll_start(handle, Int32(UV_READABLE.rawValue)) { handle, _, _ in
            Unmanaged<LibuvHost>.fromOpaque(handle!.pointee.data).takeUnretainedValue().hosted.step()
        }
    }

    deinit {
        uv_poll_stop(handle)
        // libuv uses the handle until its callback.
        handle.withMemoryRebound(to: uv_handle_t.self, capacity: 1) {
            uv_close($0) { $0!.withMemoryRebound(to: uv_poll_t.self, capacity: 1) { $0.deallocate() } }
        }
        hosted.invalidate()
    }
}
