// The scenarios of a single loop, and of threads.

import CFaults
import Dispatch
import EventLoop
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

extension Scenario {
    static let timers = Scenario(name: "timers", mayStopWith: [noLoop]) { _ in
        try onThread { loop in
            let (fired, performed) = (Counter(), Counter())
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            // A loop whose timers are all due at once creates no base.
            _ = loop.run(for: .milliseconds(1))
            for number in 1...5 { loop.add(RunLoop.Timer(after: .milliseconds(number)) { _ in fired.increment() }) }
            let sender = try startThread {
                for _ in 0..<50 { loop.perform { performed.increment() } }
                try loop.performAndWait(timeout: patience) { performed.increment() }
            }
            run(loop) { fired.value == 5 && performed.value == 51 }
            try sender.join()
            try require(fired.value == 5 && performed.value == 51, "\(fired.value) of 5 timers, \(performed.value) of 51 performs")
        }
    }

    static let descriptors = Scenario(name: "descriptors", mayStopWith: [noLoop]) { _ in
        try onThread { loop in
            for mode in [.default, "second"] as [RunLoop.Mode] {
                var sources: [RunLoop.DescriptorSource] = []
                let seen = Counter()
                defer { for source in sources { source.invalidate() } }
                for trigger in [.level, .edge, .oneShot] as [RunLoop.DescriptorSource.Trigger] {
                    let ends = try Ends()
                    let source = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read, trigger: trigger) { source, _ in
                        for _ in 0..<ends.empty() { seen.increment() }
                        if source.isValid && trigger == .oneShot { source.rearm() }
                    }
                    source.onInvalidation { withExtendedLifetime(ends) {} }
                    sources.append(source)
                    loop.add(source, forMode: mode)
                    try ends.fill()
                }
                run(loop, mode) { seen.value == 3 || sources.contains { !$0.isValid } }
                try require(seen.value == 3, sources, "\(seen.value) of 3 descriptors in \(mode)")
            }
        }
    }

    /// A handler runs the loop in modes that have never run.
    static let modal = Scenario(name: "modal", mayStopWith: [noLoop]) { _ in
        try onThread { loop in
            let ends = try Ends()
            let (seen, fired) = (Counter(), Counter())
            let source = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read) { _, _ in
                for _ in 0..<ends.empty() { seen.increment() }
            }
            defer { source.invalidate() }
            for mode in ["modal", "deeper"] as [RunLoop.Mode] { loop.add(source, forMode: mode) }
            loop.perform {
                for mode in ["modal", "deeper"] as [RunLoop.Mode] {
                    let before = (seen.value, fired.value)
                    loop.add(RunLoop.Timer(after: .milliseconds(1)) { _ in fired.increment() }, forMode: mode)
                    _ = faults_own_write(ends.far, "x", 1)
                    run(loop, mode) { seen.value > before.0 && fired.value > before.1 || !source.isValid }
                }
            }
            run(loop) { fired.value == 2 && seen.value == 2 || !source.isValid }
            try require(fired.value == 2 || !source.isValid, "\(fired.value) of 2 timers")
            try require(seen.value == 2, [source], "\(seen.value) of 2 bytes")
        }
    }

    static let threads = Scenario(name: "threads") { _ in
        let group = try RunLoopThreadGroup(count: 2, name: "group")
        defer { group.shutdown() }
        let performed = Counter()
        for _ in 0..<10 { try group.next().performAndWait(timeout: patience) { performed.increment() } }
        try require(performed.value == 10, "\(performed.value) of 10 performs")
        let bound = LoopBound([1], to: group.next())
        try require(group.runLoops.first?.performAndWait(timeout: patience) { bound.withValue { $0.count } } == 1, "a bound value is lost")
    }

    static let actors = Scenario(name: "actors") { _ in
        let thread = try RunLoopThread(name: "actors")
        defer {
            thread.stop()
            thread.join()
        }
        let done = DispatchSemaphore(value: 0)
        let slept = Counter()
        Task(executorPreference: thread.runLoop) {
            await Ledger(on: thread.runLoop).add(1)
            do {
                try await thread.runLoop.clock.sleep(for: .milliseconds(1))
                slept.increment()
            } catch {}
            done.signal()
        }
        try require(done.wait(timeout: .now() + .seconds(5)) == .success, "the task is lost")
        try require(slept.value == 1, "the task did not sleep")
    }

    /// Runs on the case's main thread.
    static let mainLoop = Scenario(name: "main", mayStopWith: [noMainLoop]) { _ in
        let (served, fired) = (Counter(), Counter())
        let loop = RunLoop.main
        loop.add(RunLoop.Timer(after: .milliseconds(2)) { _ in fired.increment() })
        run(loop) { fired.value == 1 }
        try require(fired.value == 1, "the timer is lost")
        // Dispatch itself ends the process if it has no descriptor for its main queue.
        if mayMakeDescriptor() {
            let sender = try startThread { DispatchQueue.main.async { served.increment() } }
            run(loop) { served.value == 1 }
            try sender.join()
            try require(served.value == 1, "the main queue's block is lost")
        }
    }
}

private actor Ledger {
    nonisolated let loop: RunLoop
    private var sum = 0
    init(on loop: RunLoop) { self.loop = loop }
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    func add(_ number: Int) { sum += number }
}
