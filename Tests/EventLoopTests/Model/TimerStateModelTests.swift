// Rules proved here, against separate variables:
// - The word says which loop the timer is in, whether it is valid and whether it fires, after any sequence of operations.
// - A timer joins a loop if it is valid and in none. Of several threads that try, one succeeds.
// - Exactly one caller learns that the timer is invalid and that its last use has ended.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct StatePlay: ModelPlay, ~Copyable {
    private let state: TimerState
    private let constants: (repeats: Bool, isOnDemand: Bool, endsWithLoop: Bool, isPerform: Bool)
    private var isValid = true
    private var loopID: UInt64 = 0
    private var uses = 0
    private var isFiring = false
    private var isDateSet = false
    private var isRedateQueued = false
    private var ends = 0

    init(_ random: inout SplitMix64) {
        constants = (random.below(2) == 0, random.below(2) == 0, random.below(2) == 0, random.below(2) == 0)
        state = TimerState(
            repeats: constants.repeats, isOnDemand: constants.isOnDemand, endsWithLoop: constants.endsWithLoop,
            isPerform: constants.isPerform)
    }

    /// Whether the model's timer is over, which happens once.
    private mutating func isOver() -> Bool {
        let isOver = !isValid && uses == 0
        if isOver { ends += 1 }
        return isOver
    }

    mutating func step(_ random: inout SplitMix64) throws {
        switch random.below(11) {
        case 0:
            try agree(state.enter(), isValid, "enter")
            if isValid { uses += 1 }
        case 1 where uses > (loopID == 0 ? 0 : 1) + (isFiring ? 1 : 0):
            uses -= 1
            try agree(state.exit(), isOver(), "exit")
        case 2:
            let id = random.below(4) == 0 ? 99 : loopID
            let begins = isValid && !isFiring && loopID == id
            try agree(state.beginFiring(in: id), begins, "beginFiring")
            if begins { (uses, isFiring, isDateSet) = (uses + 1, true, false) }
        case 3 where isFiring:
            try agree(state.value.isDateSet, isDateSet, "isDateSet")
            let isLast = state.endFiring()
            (uses, isFiring) = (uses - 1, false)
            try agree(isLast, isOver(), "endFiring")
        case 4 where random.below(8) == 0:
            let (was, isLast) = state.invalidate()
            try agree(was.isValid, isValid, "was valid")
            try agree(was.loopID, loopID, "was in")
            let wasValid = isValid
            isValid = false
            try agree(isLast, wasValid && isOver(), "invalidate")
        case 5, 6:
            let id = random.pick([1, 77, UInt64(UInt32.max)])
            let joins = isValid && loopID == 0
            try agree(state.join(id), joins, "join")
            if joins { (loopID, uses) = (id, uses + 1) }
        case 7 where loopID != 0:
            (loopID, isRedateQueued) = (0, false)
            state.leave()
            uses -= 1
            try agree(state.exit(), isOver(), "exit after leave")
        case 8 where loopID != 0:
            let end: TimerState.End =
                isFiring ? random.pick([.membership, .validity, .firingAndValidity]) : random.pick([.membership, .validity])
            let isLast = state.leave(ending: end)
            (loopID, uses, isRedateQueued) = (0, uses - 1, false)
            if end != .membership { isValid = false }
            if end == .firingAndValidity { (uses, isFiring) = (uses - 1, false) }
            try agree(isLast, isOver(), "leave")
        case 9:
            try agree(state.noteDateSet().loopID, loopID, "the loop when the date was set")
            isDateSet = true
        case 10 where loopID != 0:
            if random.below(2) == 0 {
                state.noteRedateQueued()
                isRedateQueued = true
            } else {
                state.forgetRedateQueued()
                isRedateQueued = false
            }
        default: break
        }
        let value = state.value
        try agree(value.isValid, isValid, "isValid")
        try agree(value.loopID, loopID, "loopID")
        try agree(value.isFiring, isFiring, "isFiring")
        try agree(value.isRedateQueued, isRedateQueued, "isRedateQueued")
        try agree(ends <= 1, true, "ends once")
        try agree(state.repeats, constants.repeats, "repeats")
        try agree(state.isOnDemand, constants.isOnDemand, "isOnDemand")
        try agree(state.endsWithLoop, constants.endsWithLoop, "endsWithLoop")
        try agree(state.isPerform, constants.isPerform, "isPerform")
    }

    mutating func finish() throws {}
}

@Suite struct TimerStateModelTests {
    @Test func `random changes of a timer's word agree with separate variables`() throws {
        try playRandomly(StatePlay.self, seeds: 0..<300, steps: 300)
    }

    /// Each thread joins its own loop, fires, and leaves, while another one invalidates.
    @Test func `one of several threads ends a timer's last use`() throws {
        final class Item: Sendable { let state = TimerState(repeats: false, isOnDemand: false, endsWithLoop: false, isPerform: false) }
        for round in 0..<300 {
            let item = Item()
            let ends = Box(0)
            let start = Gate()
            let users = (1...2).map { id in
                plainThread {
                    start.wait()
                    for _ in 0..<20 {
                        if item.state.enter(), item.state.exit() { ends.increment() }
                        guard item.state.join(UInt64(id)) else { continue }
                        if round % 2 == 0 {
                            if item.state.leave(ending: .membership) { ends.increment() }
                        } else {
                            item.state.leave()
                            if item.state.exit() { ends.increment() }
                        }
                    }
                }
            }
            start.open()
            if item.state.invalidate().isLast { ends.increment() }
            for user in users { try user.join() }
            #expect(ends.value == 1)
        }
    }
}
