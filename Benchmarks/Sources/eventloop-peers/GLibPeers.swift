#if HAS_GLIB

import CGLibPeer
import CPerfPeers

enum GLibPeers {
    static var all: [(String, Contender)] {
        var all: [(String, Contender)] = FurtherPeers.cascades.map { pipes, active in
            (
                "W1.n\(pipes).a\(active)",
                Contender("glib", maximum: 20_000) { ops in
                    // GLib looks at every descriptor in every pass, so more would take minutes.
                    measuredInC(ops: ops) { peer_glib_cascade(Int32(pipes), Int32(active), W1Cascade.warmup(100), ops, $0) }
                }
            )
        }
        all += W2aPosts.posting("glib", make: loop)
        all.append(("W4.pass", Contender("glib") { ops in measuredInC(ops: ops) { peer_glib_pass(W4Pass.warmup, ops, $0) } }))
        return all
    }

    private final class Loop: @unchecked Sendable {
        // SAFETY: g_source_attach is thread-safe; the thread that made the loop runs it, and frees it when the last poster is done.
        let loop = peer_glib_loop_make()!
        deinit { peer_glib_loop_free(loop) }
    }

    private final class Body: Sendable {
        let call: @Sendable () -> Void
        init(_ call: @escaping @Sendable () -> Void) { self.call = call }
    }

    static func loop() -> PostingLoop {
        let loop = Loop()
        return PostingLoop(
            run: { peer_glib_loop_run(loop.loop) },
            post: { posts, countdown in peer_glib_loop_post(loop.loop, posts, countdown.pointer) },
            hold: { body in
                peer_glib_loop_hold(
                    loop.loop, { Unmanaged<Body>.fromOpaque($0!).takeRetainedValue().call() },
                    Unmanaged.passRetained(Body(body)).toOpaque())
            })
    }
}

#endif
