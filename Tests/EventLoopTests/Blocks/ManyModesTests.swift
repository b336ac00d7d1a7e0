// Rules proved here (semantics 6.1, 10.4; ModeTable.swift):
// - A closure for several modes, and a closure that a thread waits for, is queued, performed and withdrawn in a fixed number of steps,
//   however many closures are queued.
// - The loop performs it once, in its place among the others, and leaves nothing in the queues of its other modes.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private enum Kind: CaseIterable, Sendable {
    case perform, block, waiter, withdrawnInOrder, withdrawnFromTheEnd
}

extension RunLoop {
    /// How many closures with a ticket were put into queues or taken out of them.
    fileprivate var workSteps: Int {
        shared.withLock { shared -> Int in
            let queues = [shared.modes.common] + (shared.modes.all as [ClosureQueues])
            return queues.reduce(0) { sum, queues in
                sum + queues.queued.blocks.ticketed.testsOnlySteps.value + queues.queued.performs.ticketed.testsOnlySteps.value
            }
        }
    }
}

/// The number of steps that the loop takes to queue `count` closures for two modes and to perform or withdraw them.
private func steps(_ kind: Kind, _ count: Int) throws -> Int {
    try onFreshThread { loop in
        let modes: [RunLoop.Mode] = [.default, "second"]
        let performed = Box(0)
        let before = loop.workSteps
        var requests: [PerformRequest<Void>] = []
        for _ in 0..<count {
            switch kind {
            case .perform: loop.perform(inModes: modes) { performed.increment() }
            case .block: loop.performBlock(inModes: modes) { performed.increment() }
            case .waiter, .withdrawnInOrder, .withdrawnFromTheEnd:
                let request = PerformRequest<Void> { performed.increment() }
                let isQueued = loop.enqueueClosure(.perform, modes, { request.perform() }, CreationSite(#fileID, #line), request)
                #expect(isQueued)
                requests.append(request)
            }
        }
        let withdrawn: [PerformRequest<Void>] =
            switch kind {
            case .withdrawnInOrder: requests
            case .withdrawnFromTheEnd: Array(requests.reversed())
            case .perform, .block, .waiter: []
            }
        for request in withdrawn where request.withdraw() { loop.dequeue(request) }
        #expect(loop.run(until: .distantPast) == (withdrawn.isEmpty ? .timedOut : .finished))
        #expect(performed.value == (withdrawn.isEmpty ? count : 0))
        #expect(loop.shared.withLock { $0.modes.all.allSatisfy { $0.isEmptyLocked(.perform) && $0.isEmptyLocked(.block) } })
        #expect(loop.run(mode: "second", until: .distantPast) == .finished)
        return loop.workSteps - before
    }
}

@Suite(.tags(.memory)) struct ManyModesTests {
    @Test(arguments: Kind.allCases)
    fileprivate func `ten times as many closures for two modes take ten times as many steps`(kind: Kind) throws {
        let few = try steps(kind, 1_000)
        #expect(few > 0 && few <= 4_000)
        #expect(try steps(kind, 10_000) == 10 * few)
    }

    @Test func `closures for one mode and for several are performed in the order in which they were queued`() throws {
        let order = try onFreshThread { loop in
            let trace = Trace()
            loop.perform(inModes: [.default]) { trace.add("1") }
            loop.perform(inModes: ["second", .default]) { trace.add("2") }
            loop.perform { trace.add("3") }
            loop.perform(inModes: [.common, "second"]) { trace.add("4") }
            loop.perform(inModes: [.default, .common]) { trace.add("5") }
            loop.perform(inModes: ["second"]) { trace.add("-") }
            loop.perform(inModes: [.default]) { trace.add("6") }
            _ = loop.run(until: .distantPast)
            return trace.description
        }
        #expect(order == "1 2 3 4 5 6")
    }

    @Test func `blocks for one mode and for several are performed in the order in which they were queued`() throws {
        let order = try onFreshThread { loop in
            let trace = Trace()
            for number in 0..<200 {
                let modes: [RunLoop.Mode] = [[.default], ["second", .default], [.common], [.common, "second"], [.default, .common]][
                    number % 5]
                loop.performBlock(inModes: modes) { trace.add("\(number)") }
            }
            _ = loop.run(until: .distantPast)
            return trace.list
        }
        #expect(order == (0..<200).map(String.init))
    }

    @Test func `a nested run performs closures of the outer run's batch that are also for its mode, and the outer run skips them`() throws {
        let order = try onFreshThread { loop in
            let trace = Trace()
            loop.perform(inModes: [.default, "third"]) {
                trace.add("(")
                _ = loop.run(mode: "second", until: .distantPast)
                trace.add(")")
            }
            loop.perform(inModes: [.default, "second"]) { trace.add("both") }
            loop.perform(inModes: [.default, "third"]) { trace.add("outer") }
            _ = loop.run(until: .distantPast)
            return trace.description
        }
        #expect(order == "( both ) outer")
    }

    @Test func `if a closure makes its mode a common mode, the closures for the common modes keep their order`() throws {
        let order = try onFreshThread { loop in
            let trace = Trace()
            loop.addIdleSource(forMode: "late")
            loop.perform(inModes: [.common]) { trace.add("A") }
            loop.perform(inModes: [.common, "other"]) { trace.add("B") }
            loop.perform(inModes: ["late", "other"]) {
                trace.add("C")
                loop.addCommonMode("late")
            }
            loop.perform(inModes: ["late", "other"]) { trace.add("D") }
            for _ in 0..<2 { _ = loop.run(mode: "late", until: .distantPast) }
            return trace.description
        }
        #expect(order == "C D A B")
    }
}
