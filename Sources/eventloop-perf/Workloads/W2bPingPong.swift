// W2b: two loops on two threads, each waking the other. One operation is a round trip.

import CPerfPeers
import CoreFoundation
import Dispatch
import EventLoop
import Synchronization

enum W2bPingPong {
    static let warmup = 500

    static var cases: [Case] {
        // On one processor the figure is the loop's; on two it is the time that the machine takes to wake an idle processor.
        [
            Case(
                "W2b.one-core", "ping-pong between two loops, both threads on one processor", amount: .upTo(100_000),
                goals: [Goal("libevent", ratio: 1.05)], gated: [.allocations], contenders: loops(processor: 0)),
            Case(
                "W2b.two-cores", "ping-pong between two loops, anywhere", amount: .upTo(100_000),
                contenders: loops(processor: -1) + [Contender("dispatch", measure: dispatch)]),
        ]
    }

    private static func loops(processor: Int32) -> [Contender] {
        [
            Contender("eventloop") { eventLoop(processor, $0) },
            Contender("eventloop-perform") { eventLoopPerform(processor, $0) },
            Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_ping_pong(processor, warmup, ops, $0) } },
            Contender("cfrunloop") { coreFoundation(processor, $0) },
        ]
    }

    /// One of the two ends: how to hit, run and stop it.
    struct Player: Sendable {
        let hit: @Sendable () -> Void
        let run: @Sendable () -> Void
        let stop: @Sendable () -> Void
    }

    /// The other player. It does not exist yet when a handler is made.
    final class Opponent: @unchecked Sendable {
        // SAFETY: set before the first hit; the semaphore and the loops' own synchronization order the accesses.
        var hit: @Sendable () -> Void = {}
    }

    /// - Parameter make: makes a player on the calling thread's loop; it calls `returned` at each hit.
    static func play(
        _ processor: Int32, _ ops: Int, make: @escaping @Sendable (_ returned: @escaping @Sendable () -> Void) -> Player
    ) -> Measurement {
        measured(ops: ops) { meter in
            if processor >= 0 { perf_pin_this_thread(processor) }
            let countdown = OnLoop(perf_countdown_make(warmup))
            defer { perf_countdown_free(countdown.pointer) }
            let (over, back) = (Opponent(), Opponent())
            let stopHere = Opponent()
            let here = make {
                if perf_countdown_hit(countdown.pointer) { stopHere.hit() } else { over.hit() }
            }
            stopHere.hit = here.stop
            back.hit = here.hit
            let ready = DispatchSemaphore(value: 0)
            let stopThere = Opponent()
            let thread = PlainThread {
                if processor >= 0 { perf_pin_this_thread(processor) }
                let there = make { back.hit() }
                over.hit = there.hit
                stopThere.hit = there.stop
                ready.signal()
                there.run()
            }
            ready.wait()
            over.hit()
            here.run()
            countdown.pointer.pointee.remaining = ops
            meter.begin()
            over.hit()
            here.run()
            meter.end()
            stopThere.hit()
            thread.join()
        }
    }

    static func eventLoop(_ processor: Int32, _ ops: Int) -> Measurement {
        play(processor, ops) { returned in
            let loop = RunLoop.current
            let source = RunLoop.CustomSource(perform: returned)
            loop.add(source)
            return Player(
                hit: {
                    source.signal()
                    loop.wakeUp()
                }, run: { loop.run() }, stop: { loop.stop(sticky: true) })
        }
    }

    static func eventLoopPerform(_ processor: Int32, _ ops: Int) -> Measurement {
        play(processor, ops) { returned in
            let loop = RunLoop.current
            let idle = loop.keepAlive()
            return Player(
                hit: { loop.perform(returned) },
                run: { withExtendedLifetime(idle) { _ = loop.run() } }, stop: { loop.stop(sticky: true) })
        }
    }

    static func coreFoundation(_ processor: Int32, _ ops: Int) -> Measurement {
        play(processor, ops) { returned in
            let loop = CF.Loop()
            let source = CF.Source(returned)
            CFRunLoopAddSource(loop.loop, source.source, kCFRunLoopDefaultMode)
            return Player(
                hit: {
                    source.signal()
                    loop.wakeUp()
                }, run: { CFRunLoopRun() },
                // CFRunLoop forgets a stop that comes before the run, but not a block.
                stop: {
                    loop.perform { CFRunLoopStop(CFRunLoopGetCurrent()) }
                    loop.wakeUp()
                })
        }
    }

    /// Two serial queues. Dispatch decides which threads serve them, and whether there are two.
    static func dispatch(_ ops: Int) -> Measurement {
        play(-1, ops) { returned in
            let queue = DispatchQueue(label: "player")
            let done = DispatchSemaphore(value: 0)
            return Player(hit: { queue.async(execute: returned) }, run: { done.wait() }, stop: { done.signal() })
        }
    }
}
