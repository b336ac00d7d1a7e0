// Rules proved here, for the trait `.runLoop`:
// - The body of a test, async or not, runs on the loop's thread, and so do its suite's init and its tasks. A main-actor test runs on the
//   main actor.
// - Each test, and each case, has a loop of its own, with the requested kind of time; the innermost trait applies.
// - The loop ends with the test, however the test ends.
// - If the test requests it, the trait records an issue that names the items the test leaves behind.

import EventLoop
import EventLoopTestSupport
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.runLoop) struct RunLoopTraitTests {
    /// The values that the suite's init observed.
    let wasOnLoop = RunLoop.ofTest.isCurrent

    @Test func `a synchronous body runs on the loop's thread, and may run the loop`() {
        let loop = RunLoop.current
        #expect(loop === RunLoop.ofTest && loop.isCurrent)
        let trace = Trace()
        loop.perform { trace.add("performed") }
        #expect(loop.run(until: .distantFuture, returnAfterSourceHandled: true) == .handledSource)
        #expect(trace.description == "performed")
    }

    @Test func `an async body runs on the loop's thread, even after a suspension`() async throws {
        let loop = RunLoop.ofTest
        #expect(loop.isCurrent)
        try await loop.clock.sleep(for: .microseconds(1))
        #expect(loop.isCurrent)
        await Task.yield()
        #expect(loop.isCurrent)
        await Task.detached { #expect(!loop.isCurrent) }.value
        #expect(loop.isCurrent)
    }

    @Test func `the init of the suite and the tasks of the test run on the loop too`() async {
        #expect(wasOnLoop)
        let loop = RunLoop.ofTest
        async let isOnLoop = loop.isCurrent
        #expect(await isOnLoop)
        await withTaskGroup { group in
            for _ in 0..<3 { group.addTask { RunLoop.ofTest === loop && loop.isCurrent } }
            for await isOnLoop in group { #expect(isOnLoop) }
        }
    }

    @Test @MainActor func `a main-actor test runs on the main actor, and has access to the loop`() async throws {
        #expect(!RunLoop.ofTest.isCurrent)
        #expect(try await RunLoop.ofTest.performAsync { true })
    }

    // Its thread waited for the hold in a time that nobody advanced.
    @Test func `a test in manual time ends, also if a hold of its thread is left`() async throws {
        let test = try #require(Test.current)
        let left = Box<RunLoopThread.Hold?>(nil)
        try await RunLoopTrait.runLoop(.manualTime).provideScope(for: test, testCase: nil) { left.value = RunLoop.ofTest.holdThread() }
        #expect(left.value != nil)
    }

    @Test(.timeLimit(.minutes(60))) func `a time limit changes nothing`() async {
        #expect(RunLoop.ofTest.isCurrent)
    }

    @Test func `the loop runs while the body is suspended`() async throws {
        let loop = RunLoop.ofTest
        let pipe = Pipe()
        let text = try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<String, any Error>) in
            do {
                let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { source, _ in
                    source.invalidate()
                    continuation.resume(returning: pipe.readAll())
                }
                loop.add(source)
                pipe.write("both ends")
            } catch { continuation.resume(throwing: error) }
        }
        #expect(text == "both ends")
    }

    @Test func `outside a test with the trait, reading the test's loop or clock traps`() async {
        await #expect(processExitsWith: .failure) { _ = RunLoop.ManualClock.ofTest }
        await #expect(processExitsWith: .failure) { _ = RunLoop.ofTest }
    }

    // MARK: Cases

    private static let loops = Box<[ObjectIdentifier: RunLoop]>([:])

    @Test(arguments: 1...8)
    func `each case has a loop of its own`(number: Int) {
        let loop = RunLoop.current
        Self.loops.change { loops in
            #expect(loops[ObjectIdentifier(loop)] == nil)
            loops[ObjectIdentifier(loop)] = loop  // retained, so that no address is reused
        }
    }

    // MARK: Time

    @Test(.runLoop(.manualTime)) func `manual time stands still until the test advances it`() {
        let (loop, clock, trace) = (RunLoop.current, RunLoop.ManualClock.ofTest, Trace())
        loop.add(RunLoop.Timer(every: .seconds(60)) { _ in trace.add("@\(clock.ms)") })
        #expect(loop.run(for: .zero) == .timedOut)
        #expect(trace.description == "")
        clock.advance(by: .seconds(60))
        #expect(loop.run(for: .zero) == .timedOut)
        #expect(trace.description == "@60000")
    }

    @Test(.runLoop(.manualTime)) func `advancing manual time wakes the tasks that wait for it`() async throws {
        let clock = RunLoop.ManualClock.ofTest
        let loop = RunLoop.ofTest
        async let slept: Void = loop.clock.sleep(for: .seconds(3600))
        // As soon as the loop has a timer, the sleep has begun.
        try await suspendUntil("the sleep is a timer") { loop.nextTimerFire() != nil }
        clock.advance(by: .seconds(3600))
        try await slept
        #expect(clock.ms == 3_600_000)
    }

    @Test(.runLoop(.manualTime(autoAdvance: true, start: .ms(5)))) func `manual time can advance by itself from a given start`()
        async throws
    {
        let (loop, clock) = (RunLoop.ofTest, RunLoop.ManualClock.ofTest)
        #expect(clock.ms == 5)
        try await loop.clock.sleep(for: .seconds(86_400))
        #expect(clock.ms == 86_400_005)
    }
}

@Suite(.runLoop(.manualTime)) struct InheritedTraitTests {
    @Test func `a suite's trait applies to each of its tests`() { #expect(RunLoop.ManualClock.ofTest.ms == 0) }

    @Test(.runLoop(.manualTime(autoAdvance: true))) func `a test's own trait overrides its suite's trait`() {
        // The thread keeps its default mode from being empty.
        #expect(RunLoop.current.run(for: .seconds(1)) == .timedOut)
        #expect(RunLoop.ManualClock.ofTest.ms == 1000)
    }

    @Suite struct Inner {
        @Test func `a suite's trait applies to its nested suites too`() {
            #expect(RunLoop.ManualClock.ofTest.ms == 0 && RunLoop.current === RunLoop.ofTest)
        }
    }
}

/// The actions of the trait around a test. Functions of this suite replace the test.
@Suite struct RunLoopTraitScopeTests {
    private func scope(_ trait: RunLoopTrait, _ body: @Sendable () async throws -> Void) async throws {
        let test = try #require(Test.current)
        try await trait.provideScope(for: test, testCase: Test.Case.current, performing: body)
    }

    @Test func `the loop ends with the test, and releases its handlers`() async throws {
        let loop = Box<RunLoop?>(nil)
        let released = Counter()
        try await scope(.runLoop) {
            loop.value = .ofTest
            let canary = Canary { released.increment() }
            RunLoop.ofTest.add(RunLoop.Timer(after: .seconds(3600)) { _ in canary.touch() })
        }
        #expect(loop.value?.isValid == false)
        #expect(released.value == 1)
    }

    @Test func `the loop also ends if the test throws, and the trait rethrows the error`() async throws {
        struct Expected: Error {}
        let loop = Box<RunLoop?>(nil)
        await #expect(throws: Expected.self) {
            try await scope(.runLoop(mustBeLeftEmpty: true)) {
                loop.value = .ofTest
                RunLoop.ofTest.add(RunLoop.Timer(after: .seconds(3600)) { _ in })
                throw Expected()
            }
        }
        #expect(loop.value?.isValid == false)
    }

    @Test func `the loop also ends if the test's task is cancelled`() async throws {
        let loop = Box<RunLoop?>(nil)
        let test = try #require(Test.current)
        let task = Task {
            try await RunLoopTrait.scope(.runLoop, test) {
                loop.value = .ofTest
                try await RunLoop.ofTest.clock.sleep(until: .distantFuture)
            }
        }
        try await suspendUntil("the task has begun") { loop.value != nil }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(loop.value?.isValid == false)
    }

    /// Such a thread has no teardown, for which the trait waited. The sanitizers do not follow a thread that unwinds.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `the scope also ends if a handler has ended the loop's thread`() async throws {
        let loop = Box<RunLoop?>(nil)
        try await scope(.runLoop(mustBeLeftEmpty: true)) {
            let ofTest = RunLoop.ofTest
            loop.value = ofTest
            ofTest.perform { pthread_exit(nil) }
            await #expect(throws: RunLoopEnded.self) { try await ofTest.clock.sleep(until: .distantFuture) }
        }
        #expect(loop.value?.isValid == false)
    }

    @Test func `the issue of a test that must leave nothing names each item that it leaves`() async throws {
        let messages = Box<[String]>([])
        try await withKnownIssue {
            try await scope(.runLoop(.manualTime, mustBeLeftEmpty: true)) {
                let loop = RunLoop.ofTest
                loop.add(RunLoop.Timer(after: .seconds(3600), label: "forgotten") { _ in }, forMode: "other")
                loop.add(RunLoop.CustomSource {}, forMode: .common)
                loop.add(RunLoop.Observer(activities: .all) { _, _ in })
                loop.add(RunLoop.Observer(activities: .all, label: "twice") { _, _ in }, forMode: .common)
            }
        } matching: { issue in
            messages.value += issue.comments.map(\.rawValue)
            return true
        }
        let message = messages.value.joined()
        #expect(message.contains(#"timer "forgotten", made at EventLoopTestingTests/"#))
        #expect(message.contains("custom source, made at"))
        #expect(message.split(separator: "\n").filter { $0.contains("observer") }.count == 2)
    }

    @Test func `a test that leaves nothing, or may leave items, causes no issue`() async throws {
        try await scope(.runLoop(mustBeLeftEmpty: true)) {
            let timer = RunLoop.Timer(after: .seconds(3600)) { _ in }
            RunLoop.ofTest.add(timer)
            timer.invalidate()
            let source = RunLoop.CustomSource {}
            RunLoop.ofTest.add(source)
            RunLoop.ofTest.remove(source)
        }
        try await scope(.runLoop) { RunLoop.ofTest.add(RunLoop.Timer(after: .seconds(3600)) { _ in }) }
    }

    @Test func `a thousand tests leave no thread and no descriptor behind`() async throws {
        func openDescriptors() -> Int { (0..<16_384).filter { fcntl($0, F_GETFD) >= 0 }.count }
        let before = openDescriptors()
        for _ in 0..<1000 { try await scope(.runLoop(.manualTime)) { #expect(RunLoop.ofTest.isCurrent) } }
        // A leak of one descriptor for each test would be a thousand. Other tests run at the same time, and close theirs.
        try await suspendUntil("no more descriptors are open than before") { openDescriptors() < before + 900 }
    }
}

extension RunLoopTrait {
    fileprivate static func scope(_ trait: RunLoopTrait, _ test: Test, _ body: @Sendable () async throws -> Void) async throws {
        try await trait.provideScope(for: test, testCase: nil, performing: body)
    }
}
