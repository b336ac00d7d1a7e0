// Random scenarios: we do whatever CFRunLoop does. The harness leaves out the actions in which we differ on purpose.
//
// The seeds are fixed, so that a failure can be repeated. The failure's comment has the seed, the traces' common part, and how each
// continues.

internal import Testing

@Suite struct RandomTests {
    static let seeds: Range<UInt64> = 0..<60

    @Test(
        arguments: [
            ("sources, blocks and observers", RandomPlay.Cast()),
            ("timers", RandomPlay.Cast(timers: true)),
            ("stops", RandomPlay.Cast(stops: true)),
            ("sleeping runs", RandomPlay.Cast(stops: true, sleeps: true)),
            ("sleeping runs with timers", RandomPlay.Cast(timers: true, sleeps: true)),
            ("runs nested in sources", RandomPlay.Cast(nestsInSources: true)),
            ("runs nested in sources, with timers", RandomPlay.Cast(timers: true, nestsInSources: true)),
            ("sleeping runs nested in sources", RandomPlay.Cast(stops: true, sleeps: true, nestsInSources: true)),
            ("sleeping runs nested in sources, with timers", RandomPlay.Cast(timers: true, sleeps: true, nestsInSources: true)),
            ("runs nested in blocks", RandomPlay.Cast(nestsInBlocks: true)),
            ("sleeping runs nested in blocks", RandomPlay.Cast(stops: true, sleeps: true, nestsInBlocks: true)),
        ])
    func `random scenarios leave the same trace on both`(name: String, cast: RandomPlay.Cast) throws {
        for seed in Self.seeds {
            try same("\(name), seed \(seed)") { stage in RandomPlay(stage, cast, seed: seed).perform() }
        }
    }
}
