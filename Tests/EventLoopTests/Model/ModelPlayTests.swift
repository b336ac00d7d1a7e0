// Tests of the harness of the model tests:
// - The harness finds a structure that is wrong once, and its error names the seed and the step, or the sequence.
// - The harness plays every sequence once from every starting state.
// - A seed gives the same numbers on every platform.

import EventLoopTestSupport
import Testing

/// Counts steps, and counts the seventh twice.
private struct Miscount: ModelPlay {
    private var structure = 0
    private var model = 0

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        model += 1
        structure += model == 7 ? 2 : 1
        try agree(structure, model, "the count")
    }

    func finish() throws {}
}

/// Records the sequences that were played.
private struct Recorder: EnumerablePlay {
    static let operationCount = 3
    static let played = Box<[[Int]]>([])
    private var sequence: [Int]

    init(start: Int) { sequence = [start] }

    mutating func perform(_ operation: Int) throws {
        sequence.append(operation)
        if sequence == [2, 1, 0] { throw Divergence("it is this one") }
    }

    func finish() throws { Self.played.change { [sequence] in $0.append(sequence) } }
}

@Suite struct ModelPlayTests {
    @Test func `a divergence is reported with its seed and its step`() {
        #expect {
            try playRandomly(Miscount.self, seeds: 5..<9, steps: 10)
        } throws: {
            "\($0)" == "seed 5, step 6: the count: the structure says 8, the model 7"
        }
    }

    @Test func `every sequence is played once from every start, and the error names the one that diverges`() throws {
        #expect(try playAllSequences(Recorder.self, length: 2, starts: 2) == 18)
        let played = Recorder.played.value
        #expect(played.count == 18 && Set(played).count == 18)
        #expect {
            try playAllSequences(Recorder.self, length: 3, starts: 3)
        } throws: {
            "\($0)" == "start 2, operations [1, 0, 0]: it is this one"
        }
    }

    @Test func `a seed gives the published numbers of SplitMix64`() {
        var random = SplitMix64(seed: 1_234_567)
        #expect((0..<3).map { _ in random.next() } == [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423])
    }
}
