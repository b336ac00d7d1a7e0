// Rules proved here (semantics 9.12; ChangeQueue.swift, ChangeBatch.swift; Tests/Models/changes.pml has every interleaving):
// - A pass carries out the changes that were queued when it reached them, and continues: other threads cannot hold it there.
// - Changes of one item coalesce. The queue has one change for each membership of a source and one for the dates of each timer, and none
//   for a timer, an observer or a descriptor source that was added and removed again before the owner looked.
// - The owner's own changes take effect at once.

import EventLoopTestSupport
import Testing

@testable import EventLoop

extension RunLoop {
    fileprivate var queuedChanges: Int { shared.withLock { $0.changes.count } }
}

/// A source whose watch another thread changes whenever the owner reads it.
private final class RestlessSource: RunLoop.Source, @unchecked Sendable {
    // SAFETY: a constant and a box.
    private let descriptor: Int32
    private let identity: FileIdentity
    let looks = Box(0)

    init(_ descriptor: Int32) throws {
        (self.descriptor, identity) = (descriptor, try FileIdentity.pollable(descriptor).identity)
        super.init(kind: .watched, label: nil, site: CreationSite(#fileID, #line))
    }

    override var watch: Watch? {
        if looks.increment() < 200 {
            let other = plainThread { self.watchDidChange() }
            #expect(throws: Never.self) { try other.join() }
        }
        return Watch(identity: identity, descriptor: descriptor, wanted: [])
    }
}

/// A source that empties the pipe, and the number of its calls.
private func sourceThatCounts(on pipe: Pipe) throws -> (source: RunLoop.DescriptorSource, served: Box<Int>) {
    let served = Box(0)
    let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
        _ = pipe.readAll()
        served.increment()
    }
    return (source, served)
}

@Suite(.tags(.threads)) struct ChangeQueueTests {
    @Test func `a pass ends although another thread makes a change whenever the owner carries one out`() throws {
        let looks = try onFreshThread { loop in
            let pipe = Pipe()
            let source = try RestlessSource(pipe.readEnd)
            loop.addIdleSource()
            _ = loop.run(until: .distantPast)
            loop.withEventBase { _ in }
            loop.add(source)
            let before = source.looks.value
            #expect(loop.run(until: .distantPast) == .timedOut)
            defer { source.invalidate() }
            return source.looks.value - before
        }
        // A pass carries out changes at a handful of points.
        #expect(looks > 0 && looks < 20)
    }

    @Test func `a source that its loop's thread adds and removes is watched and not watched at once`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let isFinished = Box(false)
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            source.onInvalidation { isFinished.value = true }
            loop.withEventBase { _ in }
            for _ in 0..<3 {
                #expect(loop.add(source))
                #expect(loop.contains(source))
                let membership = source.existingMembership(of: loop)!  // it was added
                #expect(membership.anyRegistration != nil && loop.queuedChanges == 0)
                loop.remove(source)
                #expect(!loop.contains(source))
                #expect(membership.anyRegistration == nil && loop.queuedChanges == 0)
            }
            #expect(!isFinished.value)
            source.invalidate()
            #expect(isFinished.value)
            #expect(!loop.add(source))
        }
    }

    @Test func `a source that its handler removes and adds finishes once, after the handler has returned`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            pipe.write()
            let finishes = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { source, _ in
                for _ in 0..<5 {
                    RunLoop.threadsLoop().remove(source)
                    RunLoop.threadsLoop().add(source)
                }
                source.invalidate()
                #expect(finishes.value == 0)
            }
            source.onInvalidation { finishes.increment() }
            loop.add(source)
            _ = loop.run(for: patience, returnAfterSourceHandled: true)
            #expect(finishes.value == 1)
            #expect(loop.queuedChanges == 0)
        }
    }

    @Test(arguments: 0..<8)
    func `a source that two threads add and remove is watched in the modes that it is in, and finishes once`(seed: UInt64) throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let modes: [RunLoop.Mode] = [.default, "second", .common]
            let finishes = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            source.onInvalidation { finishes.increment() }
            for mode in modes.dropLast() { loop.withEventBase(forMode: mode) { _ in } }
            @Sendable func change(_ random: inout SplitMix64) {
                let mode = random.pick(modes)
                if random.below(2) == 0 { loop.add(source, forMode: mode) } else { loop.remove(source, forMode: mode) }
            }
            let other = plainThread {
                var random = SplitMix64(seed: 2 * seed)
                for _ in 0..<2_000 { change(&random) }
            }
            var random = SplitMix64(seed: 2 * seed + 1)
            for _ in 0..<2_000 { change(&random) }
            try other.join()
            loop.add(source, forMode: "second")
            _ = loop.run(mode: "second", until: .distantPast)
            let membership = source.existingMembership(of: loop)!  // it is in a mode
            for (index, mode) in modes.dropLast().enumerated() {
                #expect((membership.registration(inMode: index) != nil) == loop.contains(source, forMode: mode))
            }
            source.invalidate()
            _ = loop.run(mode: "second", until: .distantPast)
            #expect(membership.anyRegistration == nil)
            #expect(finishes.value == 1)
        }
    }

    @Test(arguments: [false, true], [false, true])
    func `timers that other threads add and invalidate while the owner is busy leave nothing behind`(
        isCommon: Bool, isRedated: Bool
    ) throws {
        let (queued, slots) = try onFreshThread { loop in
            loop.addCommonMode("second")
            loop.addIdleSource(forMode: "second")
            try plainThread {
                for _ in 0..<10_000 {
                    let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in }
                    loop.add(timer, forMode: isCommon ? .common : .default)
                    if isRedated { timer.nextFire = .now + .seconds(7_200) }
                    timer.invalidate()
                }
            }.join()
            let queued = loop.queuedChanges
            // Changes that were queued and cancelled occupy no slot.
            let slots = loop.shared.withLock { $0.modes[0].locked.timerSlots.take() }
            return (queued, slots)
        }
        #expect(queued == 0)
        #expect(slots == 0)
    }

    @Test func `a timer that the owner has not seen finishes on the thread that invalidates it`() throws {
        try onFreshThread { loop in
            let released = Box(0)
            try plainThread {
                let canary = Canary { released.increment() }
                let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in withExtendedLifetime(canary) {} }
                loop.add(timer)
                timer.invalidate()
            }.join()
            #expect(released.value == 1)
            #expect(loop.run(until: .distantPast) == .finished)
        }
    }

    @Test(arguments: [RunLoop.Mode.default, .common], [false, true])
    func `sources that other threads add and invalidate while the owner is busy leave nothing behind`(
        mode: RunLoop.Mode, isMoved: Bool
    ) throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let released = Box(0)
            loop.addCommonMode("second")
            loop.withEventBase { _ in }
            try plainThread {
                for _ in 0..<1_000 {
                    let canary = Canary { released.increment() }
                    let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                        withExtendedLifetime(canary) {}
                    }
                    loop.add(source, forMode: mode)
                    if isMoved {
                        loop.add(source, forMode: mode)
                        source.events = [.read, .closed]
                        loop.add(source, forMode: "third")
                        loop.remove(source, forMode: mode)
                    }
                    source.invalidate()
                }
            }.join()
            #expect(loop.queuedChanges == 0)
            #expect(released.value == 1_000)
            #expect(loop.shared.withLock { $0.sources.isEmpty })
            #expect(loop.run(until: .distantPast) == .finished)
        }
    }

    @Test(arguments: [RunLoop.Mode.default, .common])
    func `observers that other threads add and invalidate while the owner is busy leave nothing behind`(mode: RunLoop.Mode) throws {
        try onFreshThread { loop in
            let released = Box(0)
            loop.addCommonMode("second")
            try plainThread {
                for _ in 0..<1_000 {
                    let canary = Canary { released.increment() }
                    let observer = RunLoop.Observer(activities: .all) { _, _ in withExtendedLifetime(canary) {} }
                    loop.add(observer, forMode: mode)
                    observer.invalidate()
                }
            }.join()
            #expect(loop.queuedChanges == 0)
            #expect(released.value == 1_000)
        }
    }

    /// The owner may be about to call it, wherever another thread has moved it meanwhile.
    @Test(arguments: [false, true])
    func `an observer that the owner has seen ends on the owner's thread, also if it has left and come back:`(isBack: Bool) throws {
        try onFreshThread { loop in
            let (calls, releases) = (Box(0), Box<[Bool]>([]))
            loop.addIdleSource()
            let observer = try plainThread { () -> RunLoop.Observer in
                let canary = Canary { releases.change { $0.append(loop.isCurrent) } }
                let observer = RunLoop.Observer(activities: .beforeTimers) { _, _ in withExtendedLifetime(canary) { _ = calls.increment() }
                }
                loop.add(observer)
                return observer
            }.join()
            _ = loop.run(until: .distantPast)
            try plainThread {
                if isBack {
                    loop.remove(observer)
                    loop.add(observer)
                }
                observer.invalidate()
            }.join()
            #expect(calls.value == 1 && releases.value.isEmpty)
            _ = loop.run(until: .distantPast)
            #expect(calls.value == 1 && releases.value == [true])
            #expect(loop.queuedChanges == 0)
        }
    }

    @Test func `a source that is removed before the owner has seen it stays valid and may be added again`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let (source, served) = try sourceThatCounts(on: pipe)
            try plainThread {
                for _ in 0..<3 {
                    loop.add(source)
                    loop.remove(source)
                    #expect(loop.queuedChanges == 0 && source.isValid && !loop.contains(source))
                }
                loop.add(source)
            }.join()
            pipe.write()
            _ = loop.run(until: .distantPast)
            #expect(served.value == 1)
            source.invalidate()
        }
    }

    @Test func `a valid source that another thread adds and removes leaves nothing behind, whoever waits for its end`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let ends = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            source.onInvalidation { ends.increment() }
            try plainThread {
                for _ in 0..<1_000 {
                    loop.add(source)
                    loop.remove(source)
                }
            }.join()
            #expect(loop.queuedChanges == 0 && ends.value == 0)
            source.invalidate()
            #expect(ends.value == 1)
        }
    }

    @Test func `last callouts that invalidate again are not nested`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let (depth, deepest, calls) = (Box(0), Box(0), Box(0))
            loop.withEventBase { _ in }
            let sources = try (0..<500).map { _ in
                let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: [.read]) { _, _ in }
                source.onInvalidation { source in
                    calls.increment()
                    deepest.value = max(deepest.value, depth.increment())
                    source.invalidate()
                    depth.value -= 1
                }
                loop.add(source)
                return source
            }
            try plainThread { for source in sources { source.invalidate() } }.join()
            #expect(loop.run(until: .distantPast) == .finished)
            #expect(calls.value == sources.count && deepest.value == 1)
        }
    }

    @Test func `what the owner invalidates is watched in none of its bases, also if the source is in another loop`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            let other = RunningLoop()
            loop.withEventBase { _ in }
            loop.add(source)
            other.loop.add(source)
            let membership = source.existingMembership(of: loop)!  // it was added
            try plainThread { loop.remove(source) }.join()
            #expect(membership.anyRegistration != nil)
            source.invalidate()
            #expect(membership.anyRegistration == nil)
            try other.end()
        }
    }

    @Test func `onInvalidation is called on the loop's thread also if the owner has never seen the source`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let callers = Box<[Bool]>([])
            try plainThread {
                let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
                source.onInvalidation { callers.change { $0.append(loop.isCurrent) } }
                loop.add(source)
                source.invalidate()
            }.join()
            #expect(callers.value.isEmpty && loop.queuedChanges == 1)
            #expect(loop.run(until: .distantPast) == .finished)
            #expect(callers.value == [true])
        }
    }

    /// The caller closes the descriptor next.
    @Test(arguments: [false, true])
    func `what the owner invalidates is not watched any more when the call returns, whatever another thread has queued`(
        isAddedAgain: Bool
    ) throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            loop.withEventBase { _ in }
            loop.add(source)
            let membership = source.existingMembership(of: loop)!  // it was added
            try plainThread {
                loop.remove(source)
                if isAddedAgain { loop.add(source) }
            }.join()
            #expect(membership.anyRegistration != nil)
            source.invalidate()
            #expect(membership.anyRegistration == nil && loop.queuedChanges == 0)
        }
    }

    /// Rule 4.20: a source in two loops, of which one has seen it.
    @Test func `a source that one of its loops has never seen finishes after the loop that has it`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let released = Box(0)
            let canary = Canary { released.increment() }
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in withExtendedLifetime(canary) {} }
            loop.withEventBase { _ in }
            loop.add(source)
            let busy = RunningLoop()
            try busy.loop.performAndWait {
                // The other loop is in this closure.
                try? plainThread {
                    busy.loop.add(source)
                    source.invalidate()
                    #expect(busy.loop.queuedChanges == 0 && loop.queuedChanges == 1)
                }.join()
            }
            #expect(source.existingMembership(of: loop) == nil)
            #expect(!source.state.withLock { $0.isFinished })
            _ = loop.run(until: .distantPast)
            #expect(source.state.withLock { $0.isFinished })
            try busy.end()
        }
    }

    @Test func `a timer that another thread removes and adds repeatedly has a handful of changes`() throws {
        try onFreshThread { loop in
            let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in }
            loop.add(timer)
            _ = loop.run(until: .distantPast)
            try plainThread {
                for round in 0..<10_000 {
                    loop.remove(timer)
                    loop.add(timer)
                    timer.nextFire = .now + .seconds(round)
                }
            }.join()
            #expect(loop.queuedChanges <= 3)
            timer.nextFire = .now
            _ = loop.run(until: .distantPast)
            #expect(!timer.isValid)
            #expect(loop.queuedChanges == 0)
        }
    }

    @Test func `dates that another thread sets repeatedly are one change`() throws {
        try onFreshThread { loop in
            let fired = Box(0)
            let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in fired.increment() }
            loop.add(timer)
            _ = loop.run(until: .distantPast)
            try plainThread {
                for _ in 0..<10_000 { timer.nextFire = .now + .seconds(7_200) }
                timer.nextFire = .now
            }.join()
            #expect(loop.queuedChanges == 1)
            _ = loop.run(until: .distantPast)
            #expect(fired.value == 1)
        }
    }

    @Test(arguments: 0..<12)
    func `timers that two threads move between modes and give dates have no change left, and fire once`(seed: UInt64) throws {
        try onFreshThread { loop in
            let modes: [RunLoop.Mode] = [.default, "second", "third", .common]
            let fired = Box(0)
            let timers = (0..<3).map { _ in RunLoop.Timer(fireAt: .distantFuture) { _ in fired.increment() } }
            for mode in modes.dropLast() { loop.addIdleSource(forMode: mode) }
            @Sendable func change(_ random: inout SplitMix64) {
                let (timer, mode) = (random.pick(timers), random.pick(modes))
                switch random.below(5) {
                case 0: loop.add(timer, forMode: mode)
                case 1: loop.remove(timer, forMode: mode)
                case 2: timer.tolerance = .milliseconds(random.below(3))
                default: timer.nextFire = .now + .seconds(3_600 + random.below(3))
                }
            }
            let other = plainThread {
                var random = SplitMix64(seed: 2 * seed)
                for _ in 0..<2_000 { change(&random) }
            }
            var random = SplitMix64(seed: 2 * seed + 1)
            for _ in 0..<400 {
                for _ in 0..<random.below(8) { change(&random) }
                _ = loop.run(mode: random.pick(Array(modes.dropLast())), until: .distantPast)
            }
            try other.join()
            for timer in timers {
                loop.add(timer, forMode: "second")
                try plainThread { timer.nextFire = .now }.join()
            }
            #expect(loop.queuedChanges <= timers.count)
            _ = loop.run(mode: "second", until: .distantPast)
            #expect(fired.value == timers.count)
            #expect(loop.queuedChanges == 0)
            // A timer has a slot in each mode, and another one while the change with which it left is queued.
            for index in 0..<modes.count - 1 {
                let slot = loop.shared.withLock { $0.modes[index].locked.timerSlots.take() }
                #expect(slot <= 2 * timers.count)
            }
        }
    }

    @Test func `events that another thread sets repeatedly are one change, and the last value holds`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let (source, served) = try sourceThatCounts(on: pipe)
            loop.add(source)
            _ = loop.run(until: .distantPast)
            try plainThread {
                for _ in 0..<10_000 {
                    source.events = []
                    source.events = .read
                }
            }.join()
            #expect(loop.queuedChanges == 1)
            pipe.write()
            _ = loop.run(until: .distantPast)
            #expect(served.value == 1)
            source.invalidate()
        }
    }

    @Test func `a source that another thread moves repeatedly has one change, and ends up in its last mode`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let (source, served) = try sourceThatCounts(on: pipe)
            loop.addIdleSource(forMode: "second")
            loop.add(source)
            _ = loop.run(until: .distantPast)
            _ = loop.run(mode: "second", until: .distantPast)
            try plainThread {
                for _ in 0..<10_000 {
                    loop.add(source, forMode: "second")
                    loop.remove(source, forMode: "second")
                }
                loop.add(source, forMode: "second")
                loop.remove(source, forMode: .default)
            }.join()
            #expect(loop.queuedChanges == 1)
            pipe.write()
            _ = loop.run(until: .distantPast)
            #expect(served.value == 0)
            _ = loop.run(mode: "second", until: .distantPast)
            #expect(served.value == 1)
            source.invalidate()
        }
    }

    /// This test checks the length of the queue instead of the memory of the process.
    @Test(arguments: [false, true])
    func `four threads that add and invalidate items neither hold the loop nor fill its queue`(areSources: Bool) throws {
        let running = RunningLoop()
        let loop = running.loop
        let pipe = Pipe()
        let isOver = Box(false)
        let longest = Box(0)
        let storm = (0..<4).map { _ in
            plainThread {
                while !isOver.value {  // ends: with the run below
                    if areSources {
                        let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
                        loop.add(source)
                        source.invalidate()
                    } else {
                        let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in }
                        loop.add(timer)
                        timer.invalidate()
                    }
                    let queued = loop.queuedChanges
                    longest.change { $0 = max($0, queued) }
                }
            }
        }
        for _ in 0..<50 { try loop.performAndWait {} }
        isOver.value = true
        for thread in storm { try thread.join() }
        try running.end()
        // Each of the four threads has one item at a time. If the owner knows a timer, the queue has one change for its removal and one for
        // its end; for a source it has one.
        #expect(longest.value <= 4 * 3)
    }
}
