// W2a: other threads post closures to a loop. One operation is one closure.

import CPerfPeers
import CoreFoundation
import Dispatch
import EventLoop

enum W2aPosts {
    static var cases: [Case] {
        var cases: [Case] = []
        for producers in [1, 4] {
            let goals = [Goal("libevent", "dispatch", "nio", ratio: producers == 1 ? 0.40 : 0.65)]
            let many = producers == 1 ? "1 producer" : "\(producers) producers"
            cases.append(
                make("W2a.free.p\(producers)", "post a closure to a running loop, \(many)", .free, producers, goals: goals))
            cases.append(
                make(
                    "W2a.held-post.p\(producers)", "post it while the loop is in a handler, \(many)", .heldPosts, producers, goals: goals,
                    gated: producers == 1 ? [.allocations, .systemCalls] : []))
        }
        cases.append(
            make("W2a.held-drain.p1", "perform what was posted meanwhile", .heldDrain, 1, goals: [], gated: [.allocations]))
        cases.append(
            make(
                "W2a.sleeping.p1", "post it to a sleeping loop", .sleeping, 1, maximum: 1_000,
                goals: [Goal("libevent", "dispatch", "nio", ratio: 0.40)], gated: [.allocations, .systemCalls]))
        return cases
    }

    private static func make(
        _ id: String, _ title: String, _ posting: Posting, _ producers: Int, maximum: Int = 200_000, goals: [Goal], gated: Set<Count> = []
    ) -> Case {
        Case(
            id, title, amount: .upTo(maximum), goals: goals, gated: gated,
            contenders: [
                Contender("eventloop") { posting.measure(producers: producers, ops: $0, make: eventLoop) },
                Contender("libevent") { ops in
                    let whole = ops / producers * producers
                    return measuredInC(ops: whole) { peer_libevent_post(Int32(producers), posting.cPosting, whole, $0) }
                },
                Contender("dispatch") { posting.measure(producers: producers, ops: $0, make: dispatch) },
                Contender("cfrunloop") { posting.measure(producers: producers, ops: $0, make: coreFoundation) },
            ])
    }

    /// All cases of posting, for another loop.
    static func posting(_ name: String, make: @escaping @Sendable () -> PostingLoop) -> [(String, Contender)] {
        let all: [(String, Posting, Int)] = [
            ("W2a.free.p1", .free, 1), ("W2a.free.p4", .free, 4), ("W2a.held-post.p1", .heldPosts, 1), ("W2a.held-post.p4", .heldPosts, 4),
            ("W2a.held-drain.p1", .heldDrain, 1), ("W2a.sleeping.p1", .sleeping, 1),
        ]
        return all.map { id, posting, producers in
            (id, Contender(name) { posting.measure(producers: producers, ops: $0, make: make) })
        }
    }

    static func eventLoop() -> PostingLoop {
        let loop = RunLoop.current
        let idle = loop.keepAlive()
        return PostingLoop(
            run: {
                loop.run()
                idle.cancel()
            },
            post: { posts, countdown in
                for _ in 0..<posts {
                    loop.perform { if perf_countdown_hit(countdown.pointer) { RunLoop.current.stop() } }
                }
            },
            hold: { body in loop.perform(body) })
    }

    static func coreFoundation() -> PostingLoop {
        let loop = CF.Loop()
        let idle = CF.Source {}
        CFRunLoopAddSource(loop.loop, idle.source, kCFRunLoopDefaultMode)
        return PostingLoop(
            run: { CFRunLoopRun() },
            post: { posts, countdown in
                for _ in 0..<posts {
                    loop.perform { if perf_countdown_hit(countdown.pointer) { CFRunLoopStop(CFRunLoopGetCurrent()) } }
                    loop.wakeUp()
                }
            },
            hold: { body in loop.perform(body) })
    }

    /// A serial queue: Dispatch decides which thread serves it.
    static func dispatch() -> PostingLoop {
        let queue = DispatchQueue(label: "posts")
        let done = DispatchSemaphore(value: 0)
        return PostingLoop(
            run: { done.wait() },
            post: { posts, countdown in
                for _ in 0..<posts {
                    queue.async { if perf_countdown_hit(countdown.pointer) { done.signal() } }
                }
            },
            hold: { body in queue.async(execute: body) })
    }
}
