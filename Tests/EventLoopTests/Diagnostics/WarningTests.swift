// Rules proved here (semantics 25; docs/pitfalls.md, "Warnings"): likely mistakes are reported, each once.
// - Every kind has a mistake that is reported, and the neighbouring correct programs are not.
// - The handler is called on the thread of the mistake, outside all locks, and never inside itself.
// - Memory is bounded. A label cannot break the printed line.
//
// Each test has a process of its own, because the handler belongs to the process.

import EventLoopTestSupport
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private typealias Kind = RunLoop.Warning.Kind

/// The warnings of this process from here on.
private func recordWarnings() -> Box<[RunLoop.Warning]> {
    let warnings = Box<[RunLoop.Warning]>([])
    RunLoop.setWarningHandler { warning in warnings.change { $0.append(warning) } }
    return warnings
}

/// The kinds that `mistake` reports, on a new thread with a loop.
private func kinds(of mistake: @escaping @Sendable (RunLoop) throws -> Void) throws -> [Kind] {
    let warnings = recordWarnings()
    try onFreshThread { loop in try mistake(loop) }
    return warnings.value.map(\.kind)
}

// A macro's argument has one line number, so the mistakes whose places matter are made here.

private func makeFastTimers() -> [RunLoop.Timer] {
    var timers: [RunLoop.Timer] = []
    for interval in [Duration.microseconds(99), .zero, .seconds(-1), .nanoseconds(1)] {
        timers.append(RunLoop.Timer(every: interval, label: "fast") { _ in })
    }
    timers.append(RunLoop.Timer(fireAt: .distantFuture, interval: .microseconds(99)) { _ in })
    timers.append(RunLoop.Timer(fireAt: .distantFuture, interval: .seconds(-1)) { _ in })
    return timers
}

/// The numbers of these are honoured.
private func makeTimers() -> [RunLoop.Timer] {
    [
        RunLoop.Timer(every: .microseconds(100)) { _ in },
        RunLoop.Timer(fireAt: .distantFuture, interval: .zero) { _ in },
        RunLoop.Timer(fireAt: .distantFuture) { _ in },
        RunLoop.Timer(after: .seconds(-1)) { _ in },
    ]
}

private func releaseSources() throws {
    _ = RunLoop.CustomSource(label: "a") {}
    _ = RunLoop.Port(label: "b") { _, _ in }
    _ = try RunLoop.SignalSource(signal: SIGUSR2, label: "c") { _, _ in }
}

private func releaseTimer() { _ = RunLoop.Timer(after: .seconds(1), label: "timer") { _ in } }

private func queueLate(_ loop: RunLoop) {
    #expect(!loop.perform {})
    #expect(!loop.perform(inModes: [.default, "other"]) {})
    #expect(!loop.performBlock {})
    #expect(!loop.add(RunLoop.CustomSource(label: "late") {}))
}

private func addRefused(_ loop: RunLoop) {
    let fired = RunLoop.Timer(fireAt: .distantPast, label: "fired") { _ in }
    loop.add(fired)
    while loop.run(for: .zero) != .finished {}  // ends: the timer fires
    #expect(!loop.add(fired) && !loop.add(fired))
    let source = RunLoop.CustomSource(label: "source") {}
    source.invalidate()
    #expect(!loop.add(source))
    let elsewhere = RunLoop.Timer(after: .seconds(1), label: "elsewhere") { _ in }
    RunLoop.main.add(elsewhere)
    #expect(!loop.add(elsewhere))
    elsewhere.invalidate()
}

private func releaseHostile() {
    _ = RunLoop.CustomSource(label: "two\nlines\u{1b}[31m \"quoted\" \u{2028}\u{202e}\u{7f} é") {}
    _ = RunLoop.CustomSource(label: String(repeating: "x", count: 100_000)) {}
}

@Suite(.bounded) struct WarningTests {
    @Test func `a run of the common modes is reported once for each loop`() async {
        await #expect(processExitsWith: .success) {
            let found = try kinds { loop in
                for _ in 0..<10 { #expect(loop.run(mode: .common, for: .seconds(1)) == .finished) }
                _ = loop.run(mode: .common, until: .distantFuture)
            }
            #expect(found == [.runOfCommonModes])
            #expect(try kinds { _ = $0.run(mode: .common, for: .zero) } == [.runOfCommonModes])
        }
    }

    @Test func `a run of a mode that never contained anything is reported once, and names the mode`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            try onFreshThread { loop in
                for _ in 0..<10 { _ = loop.run(mode: "typo\n", for: .zero) }
                _ = loop.run(mode: "other", for: .zero)
                for _ in 0..<10 { _ = loop.run(for: .zero) }
            }
            #expect(warnings.value.map(\.kind) == [.runOfUnusedMode, .runOfUnusedMode, .runOfUnusedMode])
            #expect(warnings.value[0].message.contains("\"typo\\n\"") && warnings.value[2].message.contains("\"default\""))
        }
    }

    @Test func `a run of a mode that has become empty is not reported`() async {
        await #expect(processExitsWith: .success) {
            let found = try kinds { loop in
                let timer = loop.addTimer(at: .distantPast) { _ in }
                loop.add(timer, forMode: "own")
                for mode in ["own", .default] as [RunLoop.Mode] { while loop.run(mode: mode, for: .zero) != .finished {} }
                for mode in ["own", .default] as [RunLoop.Mode] { _ = loop.run(mode: mode, for: .zero) }
            }
            #expect(found == [])
        }
    }

    @Test func `a tight loop of runs that are finished is reported once`() async {
        await #expect(processExitsWith: .success) {
            let found = try kinds { loop in
                let timer = loop.addTimer(at: .distantPast) { _ in }
                while loop.run(for: .zero) != .finished {}
                #expect(!timer.isValid)
                for _ in 0..<10 * FinishedRuns.limit { _ = loop.run() }
            }
            #expect(found == [.repeatedFinishedRuns])
        }
    }

    @Test func `finished runs with passes between them are not reported`() async {
        await #expect(processExitsWith: .success) {
            let found = try kinds { loop in
                for _ in 0..<4 {
                    loop.perform {}
                    while loop.run(for: .zero) != .finished {}
                    for _ in 0..<FinishedRuns.limit / 2 { _ = loop.run() }
                }
            }
            #expect(found == [])
        }
    }

    @Test func `a series counts only if it is fast`() {
        var runs = FinishedRuns()
        var time: Int64 = 0
        for number in 1...3 * FinishedRuns.limit {
            time += 1_002_000
            let isTooMany = runs.isTooMany(passes: 1, now: { RunLoop.Instant(nanoseconds: time) })
            #expect(!isTooMany, "\(number)")
        }
        var found = 0
        for _ in 1...3 * FinishedRuns.limit {
            time += 1_000
            if runs.isTooMany(passes: 2, now: { RunLoop.Instant(nanoseconds: time) }) { found += 1 }
        }
        #expect(found == 3)
    }

    @Test func `a repeating timer below 100 µs is reported once for its place, and one that fires once is not`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            try onFreshThread { loop in
                let timers = makeFastTimers()
                #expect(timers.map(\.interval) == Array(repeating: .microseconds(100), count: 5) + [nil])
                for timer in timers + makeTimers() { timer.invalidate() }
            }
            #expect(warnings.value.map(\.kind) == [.shortInterval, .shortInterval, .shortInterval])
            #expect(warnings.value.map(\.label) == ["fast", nil, nil])
            #expect(warnings.value[0].message.contains("99 µs"))
            #expect(warnings.value[0].createdAt?.contains("WarningTests.swift:") == true)
            #expect(warnings.value[2].message.contains("fires only once"))
        }
    }

    @Test(arguments: [true, false])
    func `a descriptor that is closed before its source is invalidated is reported`(isReused: Bool) async {
        await #expect(processExitsWith: .success) { [isReused] in
            let warnings = recordWarnings()
            try onFreshThread { loop in
                var ends: [Int32] = [-1, -1]
                #expect(pipe(&ends) == 0)
                let source = try RunLoop.DescriptorSource(descriptor: ends[0], events: .read, label: "pipe") { _, _ in }
                loop.add(source)
                _ = loop.run(for: .zero)
                close(ends[0])
                if isReused { #expect(dup(ends[1]) == ends[0]) }
                source.invalidate()
                _ = loop.run(for: .zero)
                #expect(source.failure == .badDescriptor(ends[0]))
            }
            #expect(warnings.value.map(\.kind) == [.closedDescriptor])
            #expect(warnings.value.first?.label == "pipe")
        }
    }

    @Test func `a source that is invalidated before its descriptor is closed is not reported`() async {
        await #expect(processExitsWith: .success) {
            let found = try kinds { loop in
                for _ in 0..<3 {
                    var ends: [Int32] = [-1, -1]
                    #expect(pipe(&ends) == 0)
                    let source = try RunLoop.DescriptorSource(descriptor: ends[0], events: .read) { _, _ in }
                    source.onInvalidation { close($0.descriptor) }
                    loop.add(source)
                    _ = loop.run(for: .zero)
                    close(ends[1])
                    source.invalidate()
                    _ = loop.run(for: .zero)
                }
            }
            #expect(found == [])
        }
    }

    @Test func `a source and a timer that are released before they were added are reported once for their place`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            try onFreshThread { _ in
                for _ in 0..<3 {
                    try releaseSources()
                    releaseTimer()
                }
            }
            #expect(warnings.value.allSatisfy { $0.kind == .unusedItem })
            #if DEBUG
            #expect(warnings.value.map(\.label) == ["a", "b", "c", "timer"])
            #else
            #expect(warnings.value.map(\.label) == ["a", "b", "c"])
            #endif
        }
    }

    @Test func `items that were in a mode, were invalidated, or need no mode are not reported`() async {
        await #expect(processExitsWith: .success) {
            let found = try kinds { loop in
                let removed = RunLoop.CustomSource {}
                loop.add(removed)
                loop.remove(removed)
                RunLoop.CustomSource {}.invalidate()
                RunLoop.Timer(after: .seconds(1)) { _ in }.invalidate()
                _ = RunLoop.Port()
                for inBoth in [true, false] {
                    let timer = RunLoop.Timer(after: .seconds(1)) { _ in }
                    loop.add(timer)
                    if inBoth { loop.add(timer, forMode: "other") }
                    loop.remove(timer)
                    loop.remove(timer, forMode: "other")
                }
                // A thread that the owner does not see.
                let (late, copy) = (RunLoop.Timer(after: .seconds(1)) { _ in }, loop)
                try plainThread {
                    copy.add(late)
                    copy.remove(late)
                }.join()
                loop.add(RunLoop.CustomSource {})
                loop.add(RunLoop.Timer(after: .seconds(1)) { _ in })
            }
            #expect(found == [])
        }
    }

    @Test func `adding an invalid item, or one of another loop, is reported`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            try onFreshThread { addRefused($0) }
            #expect(warnings.value.map(\.kind) == [.refusedItem, .refusedItem, .refusedItem])
            #expect(warnings.value.map(\.label) == ["fired", "source", "elsewhere"])
            #expect(warnings.value[0].message.contains("after it has fired") && warnings.value[2].message.contains("another loop"))
        }
    }

    @Test func `a delayed perform that is performed before it is in all of its modes is not reported`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            let thread = try RunLoopThread(name: "fast")
            let modes = [RunLoop.Mode.default] + (0..<200).map { RunLoop.Mode(rawValue: "\($0)") }
            while true {  // ends: with a perform during which the thread is faster
                let isPerformed = Box(false)
                thread.runLoop.perform(after: .zero, inModes: modes) { isPerformed.value = true }
                if isPerformed.value { break }
                // Otherwise the thread would have the performs before this one to end, and come later each time.
                try await suspendUntil("it is performed") { isPerformed.value }
            }
            thread.stop()
            #expect(await thread.join(timeout: patience))
            #expect(warnings.value == [])
        }
    }

    @Test func `a call for tasks that throws because the loop has ended is not reported`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            let loop = try onFreshThread { loop in loop }
            await #expect(throws: RunLoopEnded.self) { _ = try await loop.connection(to: .ipv4(host: "127.0.0.1", port: 1)) }
            await #expect(throws: RunLoopEnded.self) { _ = try await loop.exitStatus(of: spawnChild("/bin/sh", ["-c", "exit 0"])) }
            let connections = try loop.connections(listeningOn: .ipv4(host: "127.0.0.1", port: 0))
            await #expect(throws: RunLoopEnded.self) { for try await _ in connections {} }
            #expect(warnings.value == [])
        }
    }

    @Test func `work for a loop that has ended with its thread is reported for each place`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            let loop = try onFreshThread { loop in loop }
            for _ in 0..<3 { queueLate(loop) }
            let expected: [Kind] = [.refusedClosure, .refusedClosure, .refusedClosure, .refusedItem]
            #expect(warnings.value.map(\.kind) == expected)
            #expect(warnings.value[0].createdAt?.contains("WarningTests.swift:") == true)
        }
    }

    @Test func `a thread that was told to stop may refuse work some times, but not again and again`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            let thread = try RunLoopThread(name: "stopped")
            thread.stop()
            #expect(await thread.join(timeout: patience))
            for _ in 1..<Warnings.ordinaryRefusals { #expect(!thread.runLoop.perform {}) }
            thread.stop(drainingFor: .zero)
            #expect(warnings.value == [])
            for _ in 0..<10 { thread.runLoop.perform {} }
            #expect(warnings.value.map(\.kind) == [.refusedClosure])
        }
    }

    @Test func `a handler that makes mistakes is not called for them, and may use the library`() async {
        await #expect(processExitsWith: .success) {
            let count = Box(0)
            RunLoop.setWarningHandler { _ in
                count.increment()
                _ = RunLoop.CustomSource {}
                _ = RunLoop.current.run(mode: .common, for: .zero)
                RunLoop.current.perform {}
                _ = RunLoop.current.run(for: .zero)
                RunLoop.setWarningHandler { _ in count.increment() }
            }
            try onFreshThread { loop in
                _ = loop.run(mode: "one", for: .zero)
                #expect(count.value == 1)
                _ = RunLoop.CustomSource {}
                #expect(count.value == 2)
            }
            RunLoop.setWarningHandler(nil)
            _ = RunLoop.CustomSource {}
            #expect(count.value == 2)
        }
    }

    @Test func `many threads make the same mistakes, and each is reported once, on one of them`() async {
        await #expect(processExitsWith: .success) {
            let warnings = Box<[String]>([])
            let threads = Box<Set<UInt>>([])
            RunLoop.setWarningHandler { warning in
                warnings.change { $0.append(warning.label!) }
                if !threads.value.contains(currentThreadID()) { warnings.change { $0.append("elsewhere") } }
            }
            let makers = (0..<8).map { _ in
                plainThread {
                    threads.change { _ = $0.insert(currentThreadID()) }
                    for _ in 0..<200 {
                        try releaseSources()
                    }
                }
            }
            for maker in makers { try maker.join() }
            #expect(warnings.value.sorted() == ["a", "b", "c"])
        }
    }

    @Test func `memory is bounded, and the last warning says so`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            try onFreshThread { loop in
                for number in 0..<Warnings.limit + 100 { _ = loop.run(mode: RunLoop.Mode("mode \(number)"), for: .zero) }
            }
            #expect(warnings.value.count == Warnings.limit + 1)
            #expect(warnings.value.last?.kind == .furtherWarningsDropped)
        }
    }

    @Test func `a warning is printed on one line, whatever its label is`() async throws {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            setenv("EVENTLOOP_WARNINGS", "1", 1)
            releaseHostile()
        }
        let output = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        let lines = output.split(separator: "\n").filter { $0.hasPrefix("EventLoop: warning: ") }
        #expect(lines.count == 2, "\(output)")
        #expect(lines.first?.contains(#"(label "two\nlines"#) == true && lines.first?.contains("WarningTests.swift:") == true)
        #expect(!output.contains("\u{1b}") && !output.contains("\u{7f}") && !output.contains("\u{202e}"))
    }

    @Test func `the environment silences the warnings`() async throws {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            setenv("EVENTLOOP_WARNINGS", "0", 1)
            _ = RunLoop.CustomSource(label: "silent") {}
        }
        #expect(!String(decoding: try #require(result).standardErrorContent, as: UTF8.self).contains("EventLoop: warning"))
    }

    @Test func `items that the package's modules make for themselves are no mistakes of the program`() {
        let own: [StaticString] = [
            "EventLoop/A.swift", "EventLoopCF/A.swift", "EventLoopHTTP/A.swift", "EventLoopMetrics/A.swift", "EventLoopStreams/A.swift",
        ]
        for file in own { #expect(CreationSite(file, 1).isInLibrary, "\(file)") }
        let others: [StaticString] = ["EventLoop", "EventLoopTests/A.swift", "EventLoopMetricsTests/A.swift", "Program/EventLoop/A.swift"]
        for file in others { #expect(!CreationSite(file, 1).isInLibrary, "\(file)") }
    }

    @Test func `every module that is a product of the package is known as one of its own`() throws {
        let manifest = try #require(Checkout.file(at: "Package.swift"))
        let products = manifest.lines.compactMap { $0.text.firstMatch(of: /\.library\(name: "(EventLoop\w*)"/).map { String($0.1) } }
        #expect(products.count > 10)
        #expect(Set(products).subtracting(["EventLoopFoundation"]) == Set(CreationSite.libraryModules))
    }

    @Test func `a child of fork reports its own mistakes`() async {
        await #expect(processExitsWith: .success) {
            let warnings = recordWarnings()
            let end = inForkedChild {
                _ = RunLoop.CustomSource {}
                return warnings.value.count == 1 ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            #expect(warnings.value.isEmpty)
        }
    }
}
