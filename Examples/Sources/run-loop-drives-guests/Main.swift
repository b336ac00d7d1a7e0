// The run loop of the main thread drives GLib's main context and a loop of libuv's.

import CGLib
import CLibuv
import Embedding
import EventLoop

@main enum Main {
    static func main() throws {
        let loop = RunLoop.main
        let glib = try GLibGuest()
        loop.add(glib.source)
        g_timeout_add(
            100,
            { _ in
                print("a timeout of GLib's, driven by the run loop"); return 1
            }, nil)

        let uv = UnsafeMutablePointer<uv_loop_t>.allocate(capacity: 1)
        uv_loop_init(uv)
        let timer = UnsafeMutablePointer<uv_timer_t>.allocate(capacity: 1)
        uv_timer_init(uv, timer)
        uv_timer_start(timer, { _ in print("a timer of libuv's, driven by the run loop") }, 150, 150)
        let libuv = try LibuvGuest(uv)
        loop.add(libuv.source)

        _ = loop.run(for: .milliseconds(350))
        withExtendedLifetime((glib, libuv)) {}
    }
}
