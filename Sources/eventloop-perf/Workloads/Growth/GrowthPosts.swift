// Closures that are posted by another thread while the loop is in a handler, all performed after it. As W2a, with n posts.

import CPerfPeers

enum GrowthPosts {
    static var contenders: [GrowthContender] {
        [
            contender(Contender.ours) { how, posts in how.measure(producers: 1, ops: posts, make: W2aPosts.eventLoop) },
            contender("libevent") { how, posts in measuredInC(ops: posts) { peer_libevent_post(1, how.cPosting, posts, $0) } },
        ]
    }

    /// The threads are those of the measurement. Nothing is kept from one to the next.
    private static func contender(_ name: String, _ measure: @escaping @Sendable (Posting, Int) -> Measurement) -> GrowthContender {
        GrowthContender(name) { size in
            GrowthRig { cost, ops in
                var taken: Int64 = 0
                for _ in stride(from: 0, to: ops, by: size) { taken += measure(cost == 0 ? .heldPosts : .heldDrain, size).sample.wall_ns }
                return taken
            } end: {
            }
        }
    }
}
