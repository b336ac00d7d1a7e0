// Rules proved here (semantics 15.8, 15.9): no job is lost when its loop ends.
// - When a RunLoopThread stops, it runs the jobs that are queued by then in its last batch, on its own thread, before teardown.
// - One thread of the process runs the jobs that are queued later, and the jobs that any other ending thread leaves behind. It runs them
//   one after another. On it, isolation checks pass for the loop of the running job, and for no other loop. The program's signals are not
//   delivered to it. A child that a job forks runs none of the other jobs.

import Dispatch
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct `Jobs of loops that end` {
    @Test func `jobs that are queued before stop run in the last batch, before teardown`() async throws {
        for _ in 0..<50 / roundsDivisor {
            let trace = Trace()
            let thread = try RunLoopThread(name: "last batch", teardown: { _ in trace.add("teardown") })
            let loop = thread.runLoop
            let (entered, gate) = (Gate(), Gate())
            loop.perform {
                entered.open()
                gate.wait()
            }
            try await entered.waitInTask()
            let tasks = (1...3).map { number in
                Task(executorPreference: loop) { trace.add("job\(number) \(loop.isCurrent)") }
            }
            thread.stop()
            gate.open()
            for task in tasks { await task.value }
            #expect(thread.join(timeout: patience))
            #expect(trace.list == ["job1 true", "job2 true", "job3 true", "teardown"])
        }
    }

    @Test func `an actor whose loop has ended completes its calls on another thread, and its isolation checks pass there`() async throws {
        let thread = try RunLoopThread(name: "short")
        let ledger = Ledger(on: thread.runLoop)
        #expect(await ledger.isOnLoop())
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(await !ledger.isOnLoop())
        await ledger.append("afterwards")
        let seen = await ledger.run { isolated in
            isolated.assertIsolated()
            return (isolated.loop.isIsolatingCurrentContext(), isolated.entries)
        }
        #expect(seen.0 == true)
        #expect(seen.1 == ["afterwards"])
        #expect(thread.runLoop.isIsolatingCurrentContext() == false)
    }

    @Test func `all ended loops share one thread, on which isolation checks pass only for a job's own loop`() async throws {
        var ledgers: [Ledger] = []
        for _ in 0..<3 { ledgers.append(Ledger(on: try onFreshThread { $0 })) }
        var threads: Set<UInt> = []
        for ledger in ledgers {
            threads.insert(await ledger.threadID())
            let others = ledgers.filter { $0 !== ledger }.map(\.loop)
            let foreign = await ledger.run { _ in others.map { $0.isIsolatingCurrentContext() } }
            #expect(foreign == [false, false])
        }
        #expect(threads.count == 1)
    }

    @Test func `a task that prefers a loop that has ended completes`() async throws {
        let loop = try onFreshThread { $0 }
        let task = Task(executorPreference: loop) {
            await Task.yield()
            return loop.isCurrent
        }
        #expect(await task.value == false)
    }

    @Test func `jobs that a thread leaves behind when it ends without a run still run, in order`() async throws {
        let ledger = try onFreshThread { loop in
            let ledger = Ledger(on: loop, senders: 1)
            for number in 0..<100 { Task(executorPreference: loop) { await ledger.run { $0.note(number) } } }
            return ledger
        }
        try await suspendUntil("the jobs have run") { await ledger.numbers[0].count == 100 }
        #expect(await ledger.numbers[0] == Array(0..<100))
    }

    @Test func `jobs of an ended loop can use a LoopBound of that loop, and can release it`() async throws {
        let released = Box(0)
        let thread = try RunLoopThread(name: "bound")
        let loop = thread.runLoop
        let ledger = Ledger(on: loop)
        let bound = Box<LoopBound<Canary>?>(LoopBound(Canary { released.increment() }, to: loop))
        thread.stop()
        #expect(thread.join(timeout: patience))
        await ledger.run { _ in _ = bound.value?.value }
        #expect(released.value == 0)
        await ledger.run { _ in bound.value = nil }
        #expect(released.value == 1)
    }

    @Test func `calls that race with the end of the loop all complete`() async throws {
        for round in 0..<60 / roundsDivisor {
            let thread = try RunLoopThread(name: "race")
            let ledger = Ledger(on: thread.runLoop, senders: 4)
            await withTaskGroup { group in
                for sender in 0..<4 {
                    group.addTask { for number in 0..<50 { await ledger.run { $0.note(number, from: sender) } } }
                }
                group.addTask {
                    for _ in 0..<round { await Task.yield() }
                    thread.stop()
                }
            }
            #expect(thread.join(timeout: patience))
            #expect(await ledger.numbers == Array(repeating: Array(0..<50), count: 4))
        }
    }

    @Test func `the thread of ended loops blocks all signals but those that report a fault`() async {
        await #expect(processExitsWith: .success) {
            let blocked = Box<Set<Int32>?>(nil)
            try onFreshThread { loop in
                // This thread starts the other one, which inherits its mask.
                letThrough(SIGTERM, SIGURG)
                Task(executorPreference: loop) { blocked.value = blockedSignals() }
            }
            try waitUntil("the job has run") { blocked.value != nil }
            let all = try #require(blocked.value)
            #expect(all.isSuperset(of: [SIGTERM, SIGURG, SIGUSR1]) && all.isDisjoint(with: faultSignals), "\(all)")
        }
    }

    @Test func `a child that a job of an ended loop forks runs none of the other jobs`() async {
        await #expect(processExitsWith: .success) {
            let (pipe, child, isDone) = (Pipe(), Box<Int32>(-1), Box(false))
            let loop = try onFreshThread { loop in
                Task(executorPreference: loop) {
                    let number = systemFork()
                    if number == 0 { killLater(seconds: 300) } else { child.value = number }
                }
                Task(executorPreference: loop) {
                    pipe.write("x")
                    isDone.value = true
                }
                return loop
            }
            try waitUntil("both jobs have run") { isDone.value }
            var status: Int32 = 0
            while waitpid(child.value, &status, 0) < 0 && errno == EINTR {}
            let signal = status & 0x7f
            #expect(signal != 0 && signal != SIGALRM, "the child traps, and does not wait for more jobs: signal \(signal)")
            #expect(pipe.readAll() == "x")
            #expect(!loop.isValid)
        }
    }

    @Test func `code that is not isolated traps on the thread of ended loops as on any other thread`() async {
        await #expect(processExitsWith: .failure) {
            let (ended, other) = (try onFreshThread { $0 }, try onFreshThread { $0 })
            await Ledger(on: ended).run { _ in other.checkIsolated() }
        }
    }
}

extension Ledger {
    func note(_ number: Int, from sender: Int = 0) { numbers[sender].append(number) }
}
