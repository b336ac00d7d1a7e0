// Rules proved here (semantics 23.1 to 23.3, 23.5, 23.6):
// - A callout of every kind that lasts longer than the threshold is reported once, while it lasts, with its kind, label and site.
// - Several watchdogs on a loop judge by their own thresholds; watching twice is watching once.
// - A nested run is judged by the innermost callout; a sleep is no stall.
// - A callout that is in progress at `watch` is judged from then on.
// - After `stopWatching`, `invalidate` and the release of the watchdog, nothing is reported. `onStall` may call all of them.
// - The processor time of a blocked thread is far less than the duration; that of a thread that computes is not.
// - A sleeping loop counts as asleep, also when something starts or stops observing it meanwhile.
// - A watchdog keeps no loop alive, and survives its loops.
//
// The stalled code waits until it has been reported, so no test depends on the speed of the machine. A slow machine makes other callouts
// slow, too, so the tests look for the planted one.

import CPlatform
import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

/// What a watchdog has reported about the planted stall.
private final class Reports: Sendable {
    private let all = Box<[RunLoop.Watchdog.Stall]>([])
    let isPlanted: @Sendable (RunLoop.Watchdog.Stall) -> Bool

    init(where isPlanted: @escaping @Sendable (RunLoop.Watchdog.Stall) -> Bool) { self.isPlanted = isPlanted }
    convenience init(label: String) { self.init { $0.label == label } }

    var stalls: [RunLoop.Watchdog.Stall] { all.value.filter(isPlanted) }

    func watchdog(threshold: Duration, then body: @escaping @Sendable () -> Void = {}) -> RunLoop.Watchdog {
        RunLoop.Watchdog(threshold: threshold) { [self] stall in
            all.change { $0.append(stall) }
            if isPlanted(stall) { body() }
        }
    }

    /// The stalled code: computes until there is a report.
    @inline(never) func stallUntilReported() {
        do { try waitUntil("the watchdog reports the stall") { !stalls.isEmpty } } catch { Issue.record(error) }
    }
}

private actor Worker {
    private let loop: RunLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    init(on loop: RunLoop) { self.loop = loop }
    func work(_ body: @Sendable () -> Void) { body() }
}

extension RunLoop.Watchdog {
    /// Watches a loop that runs, and returns when the loop publishes its callouts.
    fileprivate func watchAndWait(_ loop: RunLoop) throws {
        watch(loop)
        try waitUntil("the loop publishes its callouts") { loop.hasAdoptedObservation }
        // The step in which the loop has begun to publish is over.
        try loop.performAndWait {}
    }
}

/// Places from which a loop calls out.
private enum Place: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case descriptorSource, customSource, timer, observer, perform, block, delayedPerform, port, invalidation

    var testDescription: String { rawValue }

    var kind: RunLoop.Recording.Kind {
        switch self {
        case .descriptorSource: .descriptorSource
        case .customSource: .customSource
        case .timer: .timer
        case .observer: .observer
        case .perform, .delayedPerform: .perform
        case .block: .block
        case .port: .port
        case .invalidation: .invalidation
        }
    }

    var label: String? {
        switch self {
        case .perform, .block, .delayedPerform: nil
        default: "planted"
        }
    }

    /// Has the loop call `body` once. Returns the line of the place of creation.
    func plant(on loop: RunLoop, _ pipe: Pipe, _ body: @escaping @Sendable () -> Void) throws -> UInt {
        let once = Once()
        let act: @Sendable () -> Void = { if once.isFirst() { body() } }
        let line: UInt
        switch self {
        case .descriptorSource:
            line = #line + 1
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, label: "planted") { source, _ in
                source.invalidate()
                act()
            }
            loop.add(source)
            pipe.write()
        case .customSource:
            let source = RunLoop.CustomSource(label: "planted", perform: act); line = #line
            loop.add(source)
            source.signal()
            loop.wakeUp()
        case .timer:
            loop.add(RunLoop.Timer(after: .zero, label: "planted") { _ in act() }); line = #line
        case .observer:
            loop.add(RunLoop.Observer(activities: .beforeTimers, repeats: false, label: "planted") { _, _ in act() }); line = #line
            loop.wakeUp()
        case .perform:
            loop.perform(act); line = #line
        case .block:
            loop.performBlock(act); line = #line
            loop.wakeUp()
        case .delayedPerform:
            loop.perform(after: .zero, act); line = #line
        case .port:
            let port = RunLoop.Port(label: "planted") { _, _ in act() }; line = #line
            loop.add(port)
            try port.send(RunLoop.PortMessage(id: 1))
        case .invalidation:
            let source = RunLoop.CustomSource(label: "planted") {}; line = #line
            source.onInvalidation(act)
            loop.add(source)
            loop.perform { source.invalidate() }
        }
        return line
    }
}

@Suite(.bounded, .tags(.threads)) struct WatchdogTests {
    @Test(arguments: Place.allCases)
    private func `a stall is reported once, while it lasts, with its kind, label and line`(place: Place) throws {
        let line = Box(UInt(0))
        let reports = Reports { $0.createdAt?.hasSuffix("WatchdogTests.swift:\(line.value)") ?? false }
        // The second reports so much later that the first would have reported twice.
        let witness = Reports { $0.createdAt?.hasSuffix("WatchdogTests.swift:\(line.value)") ?? false }
        let running = RunningLoop()
        let pipe = Pipe()
        let (first, second) = (reports.watchdog(threshold: .milliseconds(5)), witness.watchdog(threshold: .milliseconds(40)))
        first.watch(running.loop)
        try first.watchAndWait(running.loop)
        second.watch(running.loop)
        let planted = Gate()
        line.value = try place.plant(on: running.loop, pipe) {
            planted.wait()
            // On a busy machine the thread of the first one may get no time meanwhile.
            reports.stallUntilReported()
            witness.stallUntilReported()
        }
        planted.open()
        try running.end()
        first.invalidate()
        let stall = try #require(reports.stalls.first)
        #expect(reports.stalls.count == 1 && witness.stalls.count == 1)
        #expect(stall.kind == place.kind)
        #expect(stall.label == place.label)
        #expect(stall.loop === running.loop)
        #expect(stall.duration >= .milliseconds(5))
        #expect(witness.stalls[0].duration >= .milliseconds(40))
        #expect(stall.processorTime <= stall.duration)
        withExtendedLifetime(second) {}
    }

    @Test func `a job of an actor is reported`() async throws {
        try await withLoopThread { thread in
            let reports = Reports { $0.kind == .job }
            let watchdog = reports.watchdog(threshold: .milliseconds(5))
            try watchdog.watchAndWait(thread.runLoop)
            await Worker(on: thread.runLoop).work { reports.stallUntilReported() }
            #expect(reports.stalls.count == 1)
            #expect(reports.stalls[0].label == nil && reports.stalls[0].createdAt == nil)
            watchdog.invalidate()
        }
    }

    @Test func `two loops that stall at the same time are both reported`() throws {
        let loops = (RunningLoop(), RunningLoop())
        let reports = (Reports(label: "first"), Reports(label: "second"))
        let both: @Sendable (RunLoop.Watchdog.Stall) -> Bool = { reports.0.isPlanted($0) || reports.1.isPlanted($0) }
        let all = Reports(where: both)
        let watchdog = all.watchdog(threshold: .milliseconds(5))
        try watchdog.watchAndWait(loops.0.loop)
        try watchdog.watchAndWait(loops.1.loop)
        for (loop, label) in [(loops.0.loop, "first"), (loops.1.loop, "second")] {
            loop.add(
                RunLoop.Timer(after: .zero, label: label) { _ in
                    do { try waitUntil("both are reported") { all.stalls.count == 2 } } catch { Issue.record(error) }
                })
        }
        try loops.0.end()
        try loops.1.end()
        #expect(Set(all.stalls.map(\.label)) == ["first", "second"])
        #expect(all.stalls.allSatisfy { $0.loop === ($0.label == "first" ? loops.0.loop : loops.1.loop) })
        watchdog.invalidate()
    }

    @Test func `a nested run is judged by its innermost callout, and the callout around it from the run's end on`() throws {
        let running = RunningLoop()
        // On a busy machine the outer callout may itself last as long as the threshold before or after a nested run. Such an attempt proves nothing.
        try waitUntil("an attempt without such a pause") { try Self.playNestedRuns(on: running.loop) }
        try running.end()
    }

    /// False if the outer callout has lasted as long as the threshold outside the nested runs before it is to be reported.
    private static func playNestedRuns(on loop: RunLoop) throws -> Bool {
        let threshold = Duration.milliseconds(20)
        let all = Reports { $0.label == "inner" || $0.label == "outer" }
        let watchdog = all.watchdog(threshold: threshold)
        defer { watchdog.invalidate() }
        try watchdog.watchAndWait(loop)
        // The outer callout is judged until a nested run begins, and again from its end on.
        let (judgedSince, isPrompt, isOver) = (Box(RunLoop.Instant.now), Box(true), Gate())
        @Sendable func noteTime() { if RunLoop.Instant.now - judgedSince.value >= threshold { isPrompt.value = false } }
        let observer = RunLoop.Observer(activities: [.entry, .exit]) { _, activity in
            if activity == .entry { noteTime() } else { judgedSince.value = .now }
        }
        loop.add(observer, forMode: "nested")
        loop.add(
            RunLoop.Timer(after: .zero, label: "outer") { _ in
                let alive = loop.keepAlive(forMode: "nested")
                defer {
                    alive.cancel()
                    isOver.open()
                }
                // A sleep of three thresholds is no stall.
                _ = loop.run(mode: "nested", for: threshold * 3)
                let afterSleep = all.stalls.map(\.label)
                let timer = RunLoop.Timer(after: .zero, label: "inner") { _ in
                    do { try waitUntil("the inner one is reported") { all.stalls.contains { $0.label == "inner" } } } catch {
                        Issue.record(error)
                    }
                    loop.stop()
                }
                loop.add(timer, forMode: "nested")
                _ = loop.run(mode: "nested", for: patience)
                let afterInner = all.stalls.map(\.label)
                noteTime()
                if !isPrompt.value { return }
                #expect(afterSleep == [])
                #expect(afterInner == ["inner"])
                do { try waitUntil("the outer one is reported") { all.stalls.count == 2 } } catch { Issue.record(error) }
                #expect(all.stalls.map(\.label) == ["inner", "outer"])
            })
        isOver.wait()
        observer.invalidate()
        return isPrompt.value
    }

    @Test(arguments: ["timer", "observer", "source", "block"])
    func `a callout in progress at watch is reported, with its item if that says that it is called`(kind: String) throws {
        let reports = Reports { _ in true }
        let running = RunningLoop()
        let (began, watched) = (Gate(), Gate())
        let stall: @Sendable () -> Void = {
            began.open()
            watched.wait()
            reports.stallUntilReported()
        }
        let once = Once()
        let loop = running.loop
        switch kind {
        case "timer": loop.add(RunLoop.Timer(after: .zero, label: "planted") { _ in stall() })
        case "observer":
            loop.add(RunLoop.Observer(activities: .beforeTimers, label: "planted") { _, _ in if once.isFirst() { stall() } })
            loop.wakeUp()
        case "source":
            let source = RunLoop.CustomSource(label: "planted", perform: stall)
            loop.add(source)
            source.signal()
            loop.wakeUp()
        default: loop.perform(stall)
        }
        began.wait()
        let watchdog = reports.watchdog(threshold: .milliseconds(5))
        watchdog.watch(loop)
        watched.open()
        try running.end()
        let first = try #require(reports.stalls.first)
        let kinds: [String: RunLoop.Recording.Kind] = ["timer": .timer, "observer": .observer, "source": .customSource, "block": .pass]
        #expect(first.kind == kinds[kind])
        #expect(first.label == (kind == "block" ? nil : "planted"))
        #expect((first.createdAt == nil) == (kind == "block"))
        watchdog.invalidate()
    }

    @Test func `a loop from which one of two observers withdraws while it sleeps counts as asleep`() throws {
        let running = RunningLoop()
        let loop = running.loop
        for _ in 0..<2 { loop.beginObservingCallouts() }
        try waitUntil("the loop publishes its callouts") { loop.hasAdoptedObservation }
        try loop.performAndWait {}
        try waitUntilAsleep(loop)
        loop.endObservingCallouts()
        // An edge without a wake-up has the loop look once more, and sleep on.
        try waitUntil("the loop notices the withdrawal") {
            loop.waker.channel.wake()
            return loop.waker.untaken.isDisjoint(with: .observers)
        }
        let waits = loop.statistics.waits
        try waitUntil("the loop sleeps on") {
            loop.waker.channel.wake()
            return loop.statistics.waits >= waits + 2
        }
        guard case .asleep = loop.calloutState() else {
            Issue.record("a loop that sleeps counts as working")
            return
        }
        loop.endObservingCallouts()
        try running.end()
    }

    // MARK: The end

    @Test(arguments: ["stopWatching", "invalidate", "release"])
    func `after its end a watchdog reports nothing, and releases its closure`(way: String) throws {
        let ended = Reports { _ in true }
        let witness = Reports(label: "planted")
        let released = Gate()
        let running = RunningLoop()
        do {
            let canary = Canary { released.open() }
            let watchdog = ended.watchdog(threshold: .milliseconds(1)) { canary.touch() }
            watchdog.watch(running.loop)
            switch way {
            case "stopWatching": watchdog.stopWatching(running.loop)
            case "invalidate":
                watchdog.invalidate()
                watchdog.invalidate()
                watchdog.watch(running.loop)
            default: break
            }
        }
        released.wait()
        let second = witness.watchdog(threshold: .milliseconds(20))
        second.watch(running.loop)
        running.loop.add(RunLoop.Timer(after: .zero, label: "planted") { _ in witness.stallUntilReported() })
        try running.end()
        #expect(witness.stalls.count == 1)
        #expect(!ended.stalls.contains { $0.label == "planted" })
        second.invalidate()
    }

    @Test func `onStall may watch, stop watching, invalidate, and run a loop`() throws {
        let running = (RunningLoop(), RunningLoop())
        let box = WeakReference<RunLoop.Watchdog>()
        let calls = Trace()
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in
            guard let label = stall.label, label == "first" || label == "second", let watchdog = box.value else { return }
            calls.add(label)
            if label == "first" {
                watchdog.stopWatching(stall.loop)
                watchdog.watch(running.1.loop)
                _ = RunLoop.threadsLoop().run(for: .zero)
            } else {
                watchdog.invalidate()
                watchdog.invalidate()
            }
        }
        box.value = watchdog
        watchdog.watch(running.0.loop)
        for (loop, label) in [(running.0.loop, "first"), (running.1.loop, "second")] {
            let done = Gate()
            loop.add(
                RunLoop.Timer(after: .zero, label: label) { _ in
                    do { try waitUntil("\(label) is reported") { calls.description.hasSuffix(label) } } catch { Issue.record(error) }
                    done.open()
                })
            done.wait()
        }
        try running.0.end()
        try running.1.end()
        #expect(calls.description == "first second")
        withExtendedLifetime(watchdog) {}
    }

    @Test func `a loop that ends while it is watched is not kept, and the watchdog goes on`() throws {
        let reports = Reports(label: "planted")
        let watchdog = reports.watchdog(threshold: .milliseconds(5))
        for _ in 0..<20 {
            let weak = try onFreshThread { loop in
                watchdog.watch(loop)
                loop.perform {}
                _ = loop.run(for: .zero)
                return WeakReference(loop)
            }
            try waitUntil("the loop is released") { weak.value == nil }
        }
        let running = RunningLoop()
        watchdog.watch(running.loop)
        running.loop.add(RunLoop.Timer(after: .zero, label: "planted") { _ in reports.stallUntilReported() })
        let loop = running.loop
        try running.end()
        #expect(reports.stalls.count == 1)
        watchdog.watch(loop)
        watchdog.stopWatching(loop)
        watchdog.invalidate()
    }

    // MARK: Hostile

    @Test(arguments: [Duration.zero, .seconds(-1), .nanoseconds(1)])
    func `a threshold below a millisecond counts as one`(threshold: Duration) throws {
        let reports = Reports(label: "planted")
        let running = RunningLoop()
        let watchdog = reports.watchdog(threshold: threshold)
        watchdog.watch(running.loop)
        running.loop.add(RunLoop.Timer(after: .zero, label: "planted") { _ in reports.stallUntilReported() })
        try running.end()
        #expect(reports.stalls.count == 1)
        #expect(reports.stalls.allSatisfy { $0.duration >= .milliseconds(1) })
        watchdog.invalidate()
    }

    @Test func `any threshold and any label are accepted`() throws {
        let running = RunningLoop()
        let never = RunLoop.Watchdog(threshold: .seconds(Int64.max)) { Issue.record("\($0)") }
        never.watch(running.loop)
        let label = "%s%n\u{0}\"<script>\u{202E}\n" + String(repeating: "é", count: 1000)
        let reports = Reports { $0.kind == .timer }
        let watchdog = reports.watchdog(threshold: .milliseconds(5))
        try watchdog.watchAndWait(running.loop)
        running.loop.add(RunLoop.Timer(after: .zero, label: label) { _ in reports.stallUntilReported() })
        try running.end()
        let seen = try #require(reports.stalls.first?.label)
        #expect(label.hasPrefix(String(seen.dropLast())))
        never.invalidate()
        watchdog.invalidate()
    }

    @Test func `many threads watch and stop watching`() throws {
        let reports = Reports(label: "planted")
        let running = (0..<3).map { _ in RunningLoop() }
        let shared = reports.watchdog(threshold: .milliseconds(5))
        let threads = (0..<4).map { number in
            plainThread {
                for round in 0..<500 / roundsDivisor {
                    let loop = running[(number + round) % 3].loop
                    let own = RunLoop.Watchdog(threshold: .milliseconds(1)) { _ in }
                    own.watch(loop)
                    shared.watch(loop)
                    if round % 2 == 0 { own.stopWatching(loop) }
                    shared.stopWatching(loop)
                }
            }
        }
        for thread in threads { try thread.join() }
        for one in running { shared.watch(one.loop) }
        running[1].loop.add(RunLoop.Timer(after: .zero, label: "planted") { _ in reports.stallUntilReported() })
        for one in running { try one.end() }
        #expect(reports.stalls.count == 1)
        shared.invalidate()
    }
}
