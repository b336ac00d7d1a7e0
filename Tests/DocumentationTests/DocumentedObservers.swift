// The code of docs/observers.md, compiled and run.

import EventLoop
import EventLoopTestSupport
import Testing

/// Listing 3-1: the body of a thread that logs every activity of its loop, while a timer fires every tenth of a second.
func observeTenRuns(_ log: @escaping @Sendable (RunLoop.Activity) -> Void, tick: @escaping @Sendable () -> Void) {
    let loop = RunLoop.current
    loop.add(RunLoop.Observer(activities: .all) { _, activity in log(activity) })
    RunLoop.Timer.scheduled(every: .milliseconds(100)) { _ in tick() }
    for _ in 0..<10 where loop.run(for: .seconds(1)) == .finished { break }
}

@Suite struct DocumentedObservers {
    @Test func `what handlers collect is written once, before the loop sleeps`() throws {
        try inManualTime { loop, _, trace in
            let flush: @Sendable () -> Void = { trace.add("flush") }

            let observer = RunLoop.Observer(activities: .beforeWaiting, label: "flush") { _, _ in flush() }
            loop.add(observer, forMode: .common)

            for number in 1...3 { loop.perform { trace.add("\(number)") } }
            let idle = loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.list.prefix(4) == ["1", "2", "3", "flush"])
            observer.invalidate()
            idle.invalidate()
        }
    }

    @Test func `an observer that does not repeat is called once`() throws {
        try inManualTime { loop, _, trace in
            let ready: @Sendable () -> Void = { trace.add("ready") }

            loop.add(RunLoop.Observer(activities: .beforeWaiting, repeats: false) { _, _ in ready() })

            let idle = loop.addIdleSource()
            for _ in 1...2 { #expect(loop.run(for: .seconds(1)) == .timedOut) }
            #expect(trace.list == ["ready"])
            idle.invalidate()
        }
    }

    @Test func `Listing 3-1: ten runs of a second, with an observer and a timer`() throws {
        try inManualTime { _, _, trace in
            let ticks = Counter()
            observeTenRuns({ trace.add(letter(of: $0)) }, tick: { ticks.increment() })
            #expect(trace.list.filter { $0 == "E" }.count == 10 && trace.list.filter { $0 == "X" }.count == 10)
            #expect(trace.list.prefix(5) == ["E", "T", "S", "W", "A"])
            #expect((99...100).contains(ticks.value))
        }
    }
}
