// GLib's main loop drives the run loop of the main thread: timers and posts of the run loop are served by g_main_loop_run.

import CGLib
import Embedding
import EventLoop

@main enum Main {
    static func main() throws {
        let loop = RunLoop.main
        let glib = g_main_loop_new(nil, 0)
        let host = try GLibHost(loop)
        loop.add(RunLoop.Timer(every: .milliseconds(100)) { timer in print("a timer of the run loop, driven by GLib") })
        loop.perform { print("a post to the run loop") }
        g_timeout_add(
            350,
            {
                g_main_loop_quit(OpaquePointer($0!)); return 0
            }, UnsafeMutableRawPointer(glib))
        g_main_loop_run(glib)
        withExtendedLifetime(host) {}
        g_main_loop_unref(glib)
    }
}
