// Rules proved here (semantics 9.12; ChangeQueue.swift, RunLoop+Changes.swift; Tests/Models/changes.pml has every interleaving):
// - A pass carries out the changes that were queued when it got to them, and goes on: other threads cannot hold it there.
// - Changes of one item coalesce: the queue has one for each membership of a source and for the dates of each timer, and none for a timer
//   that was added and taken away again before the owner looked.
// - What the owner changes itself takes effect at once.

import EventLoopTestSupport
import Testing

@testable import EventLoop

extension RunLoop {
    fileprivate var queuedChanges: Int { shared.withLock { $0.changes.count } }
}

/// A source whose watch is changed by another thread whenever the owner looks at it.
private final class RestlessSource: RunLoop.Source, @unchecked Sendable {
    // SAFETY: a constant and a box.
    private let descriptor: Int32
    private let identity: FileIdentity
    let looks = Box(0)

    init(_ descriptor: Int32) throws {
        (self.descriptor, identity) = (descriptor, try FileIdentity.ofPollable(descriptor))
        super.init(kind: .watched, label: nil, site: CreationSite(#fileID, #line))
    }

    override var watch: Watch? {
        if looks.increment() < 200 {
            let other = plainThread { self.watchDidChange() }
            #expect(throws: Never.self) { try other.join() }
        }
        return Watch(descriptor: descriptor, wanted: [], trigger: .level, priority: .default, identity: identity)
    }
}

@Suite struct ChangeQueueTests {
    @Test func `a pass ends although another thread changes something whenever the owner carries out a change`() throws {
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
            // What was queued and taken back has left no slot taken.
            let slots = loop.shared.withLock { $0.modes[0].timerSlots.take() }
            return (queued, slots)
        }
        #expect(queued == 0)
        #expect(slots == 0)
    }

    @Test func `a timer that the owner has not seen ends on the thread that invalidates it`() throws {
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

    @Test func `a timer that another thread takes away and adds again and again has a handful of changes`() throws {
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

    @Test func `dates that another thread sets again and again are one change`() throws {
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

    @Test func `events that another thread sets again and again are one change, and the last of them hold`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let served = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                _ = pipe.readAll()
                served.increment()
            }
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

    @Test func `a source that another thread moves about has one change, and is where it was left`() throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let served = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                _ = pipe.readAll()
                served.increment()
            }
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

    /// The memory of the process is not asked: the length of the queue says it.
    @Test func `four threads that add and invalidate timers neither hold the loop nor fill its queue`() throws {
        let running = RunningLoop()
        let loop = running.loop
        let isOver = Box(false)
        let longest = Box(0)
        let storm = (0..<4).map { _ in
            plainThread {
                while !isOver.value {  // ends: with the run below
                    let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in }
                    loop.add(timer)
                    timer.invalidate()
                    let queued = loop.queuedChanges
                    longest.change { $0 = max($0, queued) }
                }
            }
        }
        for _ in 0..<50 { try loop.performAndWait {} }
        isOver.value = true
        for thread in storm { try thread.join() }
        try running.end()
        // Each of the four has one timer at a time; the owner may know it, and then it has a change for leaving and one for its end.
        #expect(longest.value <= 4 * 3)
    }
}
