// Rules proved here:
// - An observer is notified of the activities in its mask, one at a time. Observers are called in ascending order, then in insertion order.
//   An observer that is added twice is called once.
// - A one-shot observer is notified of the first matching activity, and is then invalid and in no mode.
// - A notification uses a snapshot: an observer added during it is notified of the next activity; one invalidated or removed during it is
//   not called.
// - An observer is not re-entered. It is notified only of runs of its own mode.
// - The end of its thread detaches an observer, which stays valid.

import EventLoop
import EventLoopTestSupport
import Testing

private let everyActivity: [RunLoop.Activity] = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit]

@Suite struct `An observer` {
    /// kCFRunLoopEntry, BeforeTimers, BeforeSources, BeforeWaiting, AfterWaiting, Exit, in CFRunLoop.h.
    @Test func `has a mask whose bits are those of CFRunLoopActivity`() {
        #expect(everyActivity.map(\.rawValue) == [1, 2, 4, 32, 64, 128])
    }

    @Test(arguments: 0..<64)
    func `is notified of the activities in its mask, one at a time:`(_ choice: Int) throws {
        try inManualTime { loop, _, trace in
            let mask = everyActivity.enumerated().filter { choice & (1 << $0.offset) != 0 }.reduce(RunLoop.Activity()) {
                $0.union($1.element)
            }
            let observer = RunLoop.Observer(activities: mask) { _, activity in trace.add(letter(of: activity)) }
            #expect(observer.activities == mask)
            loop.add(observer)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == everyActivity.filter(mask.contains).map(letter(of:)).joined(separator: " "))
        }
    }

    @Test func `receives itself as its handler's argument`() throws {
        try inManualTime { loop, _, trace in
            let itself = WeakReference<RunLoop.Observer>()
            let observer = RunLoop.Observer(activities: .entry) { observer, _ in trace.add("\(observer === itself.value)") }
            itself.value = observer
            loop.add(observer)
            loop.addIdleSource()
            _ = loop.run(for: .zero)
            #expect(trace.take() == "true")
        }
    }

    @Test func `is called in ascending order, then in insertion order`() throws {
        try inManualTime { loop, _, trace in
            for (name, order) in [("c1", 5), ("a1", -1), ("b1", 0), ("c2", 5), ("a2", -1), ("b2", 0), ("z", Int.max), ("_", Int.min)] {
                loop.add(RunLoop.Observer(activities: [.beforeTimers, .exit], order: order) { _, _ in trace.add(name) })
            }
            loop.addIdleSource()
            _ = loop.run(for: .zero)
            #expect(trace.take() == "_ a1 a2 b1 b2 c1 c2 z _ a1 a2 b1 b2 c1 c2 z")
        }
    }

    @Test func `that was removed and added again is called last of its order`() throws {
        try inManualTime { loop, _, trace in
            let observers = ["a", "b", "c"].map { name in RunLoop.Observer(activities: .entry) { _, _ in trace.add(name) } }
            for observer in observers { loop.add(observer) }
            loop.remove(observers[0])
            loop.add(observers[0])
            loop.addIdleSource()
            _ = loop.run(for: .zero)
            #expect(trace.take() == "b c a")
        }
    }

    @Test func `that is added twice, and to the common modes too, is called once`() throws {
        try inManualTime { loop, _, trace in
            let observer = RunLoop.Observer(activities: .entry) { _, _ in trace.add("entry") }
            loop.add(observer)
            loop.add(observer)
            loop.add(observer, forMode: .common)
            loop.addIdleSource()
            _ = loop.run(for: .zero)
            #expect(trace.take() == "entry")
        }
    }

    @Test func `in several modes is notified in each`() throws {
        try inManualTime { loop, _, trace in
            let observer = RunLoop.Observer(activities: [.entry, .exit]) { _, activity in
                trace.add("\(letter(of: activity)):\(loop.currentMode!)")
            }
            for mode in [RunLoop.Mode.default, "a", "b"] {
                loop.addIdleSource(forMode: mode)
                if mode != "b" { loop.add(observer, forMode: mode) }
            }
            for mode in ["a", "b", .default] as [RunLoop.Mode] { _ = loop.run(mode: mode, for: .zero) }
            #expect(trace.take() == "E:a X:a E:default X:default")
        }
    }

    // MARK: One-shot observers

    @Test(arguments: everyActivity.indices)
    func `that is one-shot is notified of the first matching activity, and is then invalid:`(_ index: Int) throws {
        try inManualTime { loop, _, trace in
            let mask = everyActivity[index...].reduce(RunLoop.Activity()) { $0.union($1) }
            let observer = RunLoop.Observer(activities: mask, repeats: false) { observer, activity in
                trace.add("\(letter(of: activity))")
            }
            #expect(!observer.repeats)
            loop.add(observer)
            loop.add(observer, forMode: "other")
            loop.add(observer, forMode: .common)
            loop.addIdleSource()
            loop.addIdleSource(forMode: "other")
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == letter(of: everyActivity[index]))
            #expect(!observer.isValid)
            for mode in [.default, "other", .common] as [RunLoop.Mode] { #expect(!loop.contains(observer, forMode: mode)) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `that is one-shot is not notified again in a nested run from its callout`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let observer = RunLoop.Observer(activities: [.beforeTimers, .entry], repeats: false) { _, activity in
                trace.add(letter(of: activity))
                _ = loop.run(for: .zero)
            }
            loop.add(observer)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E")
        }
    }

    // MARK: During a notification

    @Test(arguments: everyActivity.indices, [-1, 0, 1])
    func `added during a notification is notified of the next activity:`(_ index: Int, _ order: Int) throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let added = RunLoop.Observer(activities: .all, order: order) { _, activity in trace.add(letter(of: activity)) }
            loop.add(RunLoop.Observer(activities: everyActivity[index], repeats: false, order: 0) { _, _ in loop.add(added) })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == everyActivity[(index + 1)...].map(letter(of:)).joined(separator: " "))
        }
    }

    @Test(arguments: everyActivity.indices, ["invalidate", "remove", "remove from common", "replace"])
    func `that an earlier one removes or invalidates is not called:`(_ index: Int, _ way: String) throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let later = RunLoop.Observer(activities: .all, order: 2) { _, activity in trace.add(letter(of: activity)) }
            loop.add(later, forMode: way == "remove from common" ? .common : .default)
            let replacement = RunLoop.Observer(activities: .all, order: 2) { _, activity in trace.add("r" + letter(of: activity)) }
            loop.add(
                RunLoop.Observer(activities: everyActivity[index], order: 1) { _, _ in
                    switch way {
                    case "invalidate": later.invalidate()
                    case "remove": loop.remove(later)
                    case "remove from common": loop.remove(later, forMode: .common)
                    default:
                        loop.remove(later)
                        loop.add(replacement)
                    }
                })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            var expected = everyActivity[..<index].map(letter(of:))
            if way == "replace" { expected += everyActivity[(index + 1)...].map { "r" + letter(of: $0) } }
            #expect(trace.take() == expected.joined(separator: " "))
            #expect(later.isValid == (way != "invalidate"))
        }
    }

    @Test func `that a later one removes has already been called`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let first = RunLoop.Observer(activities: .all, order: 1) { _, activity in trace.add(letter(of: activity)) }
            loop.add(first)
            loop.add(RunLoop.Observer(activities: .beforeSources, order: 2) { _, _ in first.invalidate() })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S")
        }
    }

    @Test(arguments: everyActivity.indices, [false, true])
    func `that removes or invalidates itself is not called again:`(_ index: Int, _ invalidating: Bool) throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let observer = RunLoop.Observer(activities: .all) { observer, activity in
                trace.add(letter(of: activity))
                guard activity == everyActivity[index] else { return }
                if invalidating { observer.invalidate() } else { loop.remove(observer) }
            }
            loop.add(observer)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == everyActivity[...index].map(letter(of:)).joined(separator: " "))
            #expect(observer.isValid == !invalidating)
            if !invalidating {
                loop.add(observer)
                _ = loop.run(for: .zero)
                #expect(trace.list.first == "E")
            }
        }
    }

    @Test func `that is moved to another mode is notified in that mode`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "other")
            let observer = RunLoop.Observer(activities: .all) { observer, activity in
                trace.add("\(letter(of: activity)):\(loop.currentMode!)")
                guard activity == .beforeTimers, loop.currentMode == .default else { return }
                loop.add(observer, forMode: "other")
                loop.remove(observer)
            }
            loop.add(observer)
            _ = loop.run(for: .zero)
            #expect(trace.take() == "E:default T:default")
            _ = loop.run(mode: "other", for: .zero)
            #expect(trace.take() == "E:other T:other S:other X:other")
        }
    }

    @Test(arguments: [Callout.block, .source, .perform, .port, .timer], [false, true])
    func `can be added or removed by an item's callout:`(_ callout: Callout, _ adding: Bool) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let observer = RunLoop.Observer(activities: [.entry, .exit]) { _, activity in trace.add(letter(of: activity)) }
            if !adding { loop.add(observer) }
            try callout.arrange(loop, clock, Trace()) {
                if adding { loop.add(observer) } else { loop.remove(observer) }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == (adding ? "X" : "E"))
        }
    }

    @Test func `is notified of an activity only while it is in the mode`() throws {
        // The set of observed activities grows and shrinks with the observers.
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let waiting = RunLoop.Observer(activities: [.beforeWaiting, .afterWaiting]) { _, activity in trace.add(letter(of: activity)) }
            for _ in 1...3 {
                #expect(loop.run(for: .seconds(1)) == .timedOut)
                #expect(trace.take() == "")
                loop.add(waiting)
                #expect(loop.run(for: .seconds(1)) == .timedOut)
                #expect(trace.take() == "W A")
                loop.remove(waiting)
            }
        }
    }

    // MARK: Nested runs

    @Test(arguments: everyActivity.indices)
    func `is not re-entered in a nested run, but others are called:`(_ index: Int) throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let once = Once()
            loop.add(
                RunLoop.Observer(activities: .all, order: 1) { _, activity in
                    trace.add(letter(of: activity))
                    guard activity == everyActivity[index], once.isFirst() else { return }
                    trace.add("(")
                    #expect(loop.run(for: .zero) == .timedOut)
                    trace.add(")")
                })
            loop.add(RunLoop.Observer(activities: [.entry, .exit], order: 2) { _, activity in trace.add("other" + letter(of: activity)) })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            var expected = ""
            for (place, activity) in everyActivity.enumerated() {
                expected += letter(of: activity) + " "
                if place == index { expected += "( otherE otherX ) " }
                if activity == .entry || activity == .exit { expected += "other\(letter(of: activity)) " }
            }
            #expect(trace.take() + " " == expected)
        }
    }

    @Test func `is called in a nested run that another observer started`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeSources) {
                trace.add("(")
                #expect(loop.run(for: .zero) == .timedOut)
                trace.add(")")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S ( E T S X ) W A X")
        }
    }

    @Test func `that is invalidated in a nested run from its own callout is not called again`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.add(
                RunLoop.Observer(activities: .all) { observer, activity in
                    trace.add(letter(of: activity))
                    guard activity == .beforeTimers else { return }
                    loop.performBlock { observer.invalidate() }
                    _ = loop.run(for: .zero)
                    trace.add("\(observer.isValid)")
                })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T false")
        }
    }

    @Test func `that a nested run removes before its turn is not called`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let later = RunLoop.Observer(activities: .beforeSources, order: 2) { _, _ in trace.add("later") }
            loop.add(later)
            loop.add(
                RunLoop.Observer(activities: .beforeSources, repeats: false, order: 1) { _, _ in
                    loop.atFirst(.entry) {
                        trace.add("nested")
                        loop.remove(later)
                    }
                    _ = loop.run(for: .zero)
                })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "nested")
        }
    }

    // MARK: Across threads, and the end

    @Test func `that another thread invalidates is not called again`() throws {
        let (heard, invalid) = (Counter(), Gate())
        let observer = RunLoop.Observer(activities: .all) { _, _ in heard.increment() }
        let running = RunningLoop { loop in loop.add(observer) }
        try waitUntilAsleep(running.loop)
        observer.invalidate()
        let before = heard.value
        running.loop.perform { invalid.open() }
        invalid.wait()
        try running.end()
        #expect(heard.value == before)
        #expect(!observer.isValid)
    }

    @Test func `that another thread adds is notified of the next activity`() throws {
        let heard = Gate()
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        #expect(running.loop.add(RunLoop.Observer(activities: .afterWaiting) { _, _ in heard.open() }))
        running.loop.wakeUp()
        heard.wait()
        try running.end()
    }

    @Test func `is detached when its thread ends, and stays valid`() throws {
        let trace = Trace()
        let observer = RunLoop.Observer(activities: .entry) { _, _ in trace.add("entry") }
        let ended = try onFreshThread { loop in
            loop.add(observer)
            loop.add(observer, forMode: "other")
            return loop
        }
        #expect(observer.isValid)
        #expect(!ended.contains(observer))
        try onFreshThread { loop in
            #expect(loop.add(observer))
            loop.addIdleSource()
            _ = loop.run(for: .zero)
        }
        #expect(trace.take() == "entry")
    }

    @Test func `releases its handler when it is invalidated`() throws {
        try inManualTime { loop, _, trace in
            let canary = Box<Canary?>(Canary { trace.add("released") })
            let observer = RunLoop.Observer(activities: .all) { [canary = canary.value!] _, _ in canary.touch() }
            canary.value = nil
            loop.add(observer)
            #expect(trace.take() == "")
            observer.invalidate()
            #expect(trace.take() == "released")
            withExtendedLifetime(observer) {}
        }
    }

    @Test func `that has moved to a loop which calls it is released when it is invalidated`() throws {
        let (old, new) = (try RunLoopThread(name: "old"), try RunLoopThread(name: "new"))
        let (blocked, goOn, entered, mayReturn) = (Gate(), Gate(), Gate(), Gate())
        let trace = Trace()
        let canary = Box<Canary?>(Canary { trace.add("released") })
        let observer = RunLoop.Observer(activities: .beforeTimers) { [canary = canary.value!] _, _ in
            canary.touch()
            entered.open()
            mayReturn.wait()
        }
        canary.value = nil
        // In a mode that does not run.
        old.runLoop.add(observer, forMode: "other")
        try old.runLoop.performAndWait {}
        old.runLoop.perform {
            blocked.open()
            goOn.wait()
        }
        blocked.wait()
        old.runLoop.remove(observer, forMode: "other")
        new.runLoop.add(observer)
        new.runLoop.wakeUp()
        entered.wait()
        // The old loop learns that the observer has left while the new one is in its call.
        goOn.open()
        try old.runLoop.performAndWait {}
        mayReturn.open()
        observer.invalidate()
        for thread in [old, new] { try thread.runLoop.performAndWait {} }
        #expect(trace.take() == "released")
        for thread in [old, new] {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
    }
}
