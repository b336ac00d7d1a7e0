// Rules proved here, on one thread, against a count and a flag:
// - A use can begin while the item is valid, and not afterwards.
// - Exactly one call reports that the item must be finished: the call after which it is invalid and unused.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct RundownPair: ~Copyable {
    private let rundown = Rundown()
    private var isValid = true
    private var uses = 0
    private var timesFinished = 0

    mutating func enter() throws {
        try agree(rundown.enter(), isValid, "enter")
        if isValid { uses += 1 }
        try compare()
    }

    mutating func exit() throws {
        // A use ends once.
        if uses == 0 { return }
        uses -= 1
        let isLast = rundown.exit()
        try agree(isLast, !isValid && uses == 0, "exit")
        if isLast { timesFinished += 1 }
        try compare()
    }

    mutating func invalidate() throws {
        let (first, last) = rundown.invalidate()
        try agree(first, isValid, "invalidate, first")
        try agree(last, isValid && uses == 0, "invalidate, last")
        isValid = false
        if last { timesFinished += 1 }
        try compare()
    }

    private func compare() throws {
        try agree(rundown.isValid, isValid, "isValid")
        try agree(timesFinished, !isValid && uses == 0 ? 1 : 0, "how often it was finished")
    }

    mutating func endAll() throws {
        try invalidate()
        while uses > 0 { try exit() }  // ends: each iteration ends one use
        try enter()
    }
}

private struct RundownPlay: ModelPlay, ~Copyable {
    private var pair = RundownPair()
    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        switch random.below(300) {
        case 0: try pair.invalidate()
        case 1..<170: try pair.enter()
        default: try pair.exit()
        }
    }

    mutating func finish() throws { try pair.endAll() }
}

private struct ShortRundown: EnumerablePlay, ~Copyable {
    static let operationCount = 3
    private var pair = RundownPair()
    init(start: Int) {}

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0: try pair.enter()
        case 1: try pair.exit()
        default: try pair.invalidate()
        }
    }

    mutating func finish() throws { try pair.endAll() }
}

@Suite struct RundownModelTests {
    @Test func `an item is finished once, in every short sequence`() throws {
        try playAllSequences(ShortRundown.self, length: 8)
    }

    @Test func `an item with many uses is finished once`() throws {
        try playRandomly(RundownPlay.self, seeds: 0..<100, steps: 600)
    }
}
