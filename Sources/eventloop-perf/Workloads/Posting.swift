// Measures posts from other threads, in the same way for every loop. W2aPosts.swift has the posts.

import CPerfPeers
import Glibc
import Synchronization

/// A loop to which other threads post.
struct PostingLoop: Sendable {
    /// On the loop's thread: runs until stopped.
    let run: @Sendable () -> Void
    /// From any thread: posts this many closures. Each counts down, and the last one stops the loop.
    let post: @Sendable (_ posts: Int, OnLoop<perf_countdown>) -> Void
    /// On the loop's thread, before it runs: performs `body` on the loop, which does nothing else in the meantime.
    let hold: @Sendable (_ body: @escaping @Sendable () -> Void) -> Void
}

enum Posting: Sendable {
    /// The loop runs while the producers post: the time from the first post until the last closure has been performed.
    case free
    /// The loop is in a handler until everything is posted: measures only the posts.
    case heldPosts
    /// Then the rest: measures performing the closures.
    case heldDrain
    /// The loop sleeps at every post: measures only the post.
    case sleeping

    /// - Parameter make: makes the loop on the calling thread.
    func measure(producers: Int, ops: Int, make: @escaping @Sendable () -> PostingLoop) -> Measurement {
        let each = ops / producers
        let total = each * producers
        return measured(ops: total) { meter in
            let countdown = OnLoop(perf_countdown_make(total))
            defer { perf_countdown_free(countdown.pointer) }
            switch self {
            case .sleeping: Self.postToSleeper(total, countdown, meter, make)
            case .free:
                let loop = make()
                let gang = Gang(producers: producers, posts: each) { loop.post($0, countdown) }
                meter.begin()
                gang.open()
                loop.run()
                meter.end()
                gang.join()
            case .heldPosts, .heldDrain:
                let loop = make()
                let gang = Gang(producers: producers, posts: each) { loop.post($0, countdown) }
                let ignored = Meter.ignored()
                defer { ignored.sample.deallocate() }
                let posts = self == .heldPosts ? meter : ignored
                loop.hold {
                    posts.begin()
                    gang.open()
                    gang.join()
                    posts.end()
                    if self == .heldDrain { meter.begin() }
                }
                loop.run()
                if self == .heldDrain { meter.end() }
            }
        }
    }

    private static func postToSleeper(
        _ ops: Int, _ countdown: OnLoop<perf_countdown>, _ meter: Meter, _ make: @escaping @Sendable () -> PostingLoop
    ) {
        let made = Made()
        let thread = PlainThread {
            let loop = make()
            made.loop.withLock { $0 = loop }
            loop.run()
        }
        while made.loop.withLock({ $0 == nil }) { usleep(100) }
        let loop = made.loop.withLock { $0! }
        for index in 0..<ops {
            perf_let_it_sleep()
            meter.begin()
            loop.post(1, countdown)
            meter.end()
            while perf_countdown_left(countdown.pointer) >= ops - index { sched_yield() }
        }
        thread.join()
    }

    private final class Made: Sendable {
        let loop = Mutex<PostingLoop?>(nil)
    }

    var cPosting: perf_posting {
        switch self {
        case .free: PERF_POST_FREE
        case .heldPosts: PERF_POST_HELD
        case .heldDrain: PERF_DRAIN_HELD
        case .sleeping: PERF_POST_SLEEPING
        }
    }
}
