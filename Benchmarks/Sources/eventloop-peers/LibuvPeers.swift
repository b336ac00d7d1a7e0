#if HAS_LIBUV

import CLibuvPeer
import CPerfPeers

enum LibuvPeers {
    static func growth(_ what: perf_growing) -> perf_growth { peer_libuv_growth(what) }

    static var all: [(String, Contender)] {
        var all = FurtherPeers.timerCases("libuv") { change, timers, ops in
            measuredInC(ops: ops) { peer_libuv_timers(change.cTiming, timers, ops, $0) }
        }
        for (pipes, active) in FurtherPeers.cascades + [(9_900, 1), (9_900, 100)] {
            all.append(
                (
                    "W1.n\(pipes).a\(active)",
                    Contender("libuv") { ops in
                        measuredInC(ops: ops) { peer_libuv_cascade(Int32(pipes), Int32(active), W1Cascade.warmup(pipes), ops, $0) }
                    }
                ))
        }
        all.append(("W4.pass", Contender("libuv") { ops in measuredInC(ops: ops) { peer_libuv_pass(W4Pass.warmup, ops, $0) } }))
        all.append(
            (
                "W5.observer",
                Contender("libuv") { ops in
                    W5Observers.perObserver(measuredInC(ops: ops) { peer_libuv_hooks(Int32(W5Observers.observers), ops, $0) })
                }
            ))
        for connections in [100, 1_000] {
            all.append(
                (
                    "W7.c\(connections)",
                    Contender("libuv") { ops in
                        measuredInC(ops: ops) { peer_libuv_echo(Int32(connections), W7Echo.warmup, ops, $0) }
                    }
                ))
        }
        return all
    }
}

#endif
