#if HAS_LIBEV

import CLibevPeer
import CPerfPeers

enum LibevPeers {
    static var all: [(String, Contender)] {
        var all = FurtherPeers.timerCases("libev") { change, timers, ops in
            measuredInC(ops: ops) { peer_libev_timers(change.cTiming, timers, ops, $0) }
        }
        for (pipes, active) in FurtherPeers.cascades {
            all.append(
                (
                    "W1.n\(pipes).a\(active)",
                    Contender("libev") { ops in
                        measuredInC(ops: ops) { peer_libev_cascade(Int32(pipes), Int32(active), W1Cascade.warmup(pipes), ops, $0) }
                    }
                ))
        }
        all.append(("W4.pass", Contender("libev") { ops in measuredInC(ops: ops) { peer_libev_pass(W4Pass.warmup, ops, $0) } }))
        all.append(
            (
                "W5.observer",
                Contender("libev") { ops in
                    W5Observers.perObserver(measuredInC(ops: ops) { peer_libev_hooks(Int32(W5Observers.observers), ops, $0) })
                }
            ))
        for connections in [100, 1_000] {
            all.append(
                (
                    "W7.c\(connections)",
                    Contender("libev") { ops in
                        measuredInC(ops: ops) { peer_libev_echo(Int32(connections), W7Echo.warmup, ops, $0) }
                    }
                ))
        }
        return all
    }
}

#endif
