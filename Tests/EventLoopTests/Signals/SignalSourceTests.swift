// Rules proved here (SignalSource.swift):
// - Each source of a signal, in any loop, is called on its loop's thread with the number of signals that arrived since its last call.
// - It behaves like any other source: it is held while other modes run, counts as handled, is served once even if it is in several loops,
//   and can be invalidated from its own handler.
// - It counts from its creation to its end. Signals from child processes and from other processes arrive.
// - A signal that cannot be handled is `.badSignal`.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct SignalSourceTests {
    @Test func `one call reports several signals, with their number, on the loop's thread`() throws {
        let signal = testSignal(1)
        let trace = Trace()
        try onFreshThread { loop in
            letThrough(signal)
            let source = try RunLoop.SignalSource(signal: signal, label: "test") { source, count in
                #expect(loop.isCurrent && source.signal == signal && source.label == "test")
                trace.add("signal×\(count)")
            }
            loop.add(source)
            trace.observe(loop)
            raiseHere(signal, times: 5)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S signal×5 X")
            raiseHere(signal)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S signal×1 X")
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S X")
            source.invalidate()
        }
    }

    @Test func `a signal wakes a sleeping loop`() throws {
        let signal = testSignal(2)
        let thread = try RunLoopThread(name: "sleeper")
        let told = Box(0)
        let source = try countingSource(signal, told)
        thread.runLoop.add(source)
        try plainThread {
            letThrough(signal)
            for number in 1...20 {
                try waitUntilAsleep(thread.runLoop)
                raiseHere(signal)
                try waitUntil { told.value == number }
            }
        }.join()
        thread.stop()
        #expect(thread.join(timeout: patience))
    }

    @Test func `every source of a signal is called, in one loop and in others, each with its own count`() throws {
        let signal = testSignal(3)
        let counts = (0..<4).map { _ in Box(0) }
        let threads = try (0..<2).map { try RunLoopThread(name: "loop \($0)") }
        let sources = try counts.map { try countingSource(signal, $0) }
        for (index, source) in sources.enumerated() { threads[index % 2].runLoop.add(source) }
        try plainThread {
            letThrough(signal)
            raiseHere(signal, times: 3)
            try waitUntil { counts.allSatisfy { $0.value == 3 } }
            sources[0].invalidate()
            raiseHere(signal, times: 2)
            try waitUntil { counts.dropFirst().allSatisfy { $0.value == 5 } }
        }.join()
        for thread in threads {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        #expect(counts[0].value == 3)
        withExtendedLifetime(sources) {}
    }

    @Test func `signals that arrive before the first add and while other modes run are kept`() throws {
        let signal = testSignal(4)
        let other = RunLoop.Mode("other")
        try onFreshThread { loop in
            letThrough(signal)
            let counts = Box<[Int]>([])
            let source = try RunLoop.SignalSource(signal: signal) { _, count in counts.change { $0.append(count) } }
            raiseHere(signal, times: 2)
            loop.add(source)
            let alive = loop.keepAlive(forMode: other)
            #expect(loop.run(mode: other, for: .zero) == .timedOut)
            #expect(counts.value == [])
            raiseHere(signal)
            _ = loop.run(for: .zero)
            #expect(counts.value == [3])
            // The source still counts while it is in no loop.
            loop.remove(source)
            raiseHere(signal, times: 4)
            loop.add(source)
            _ = loop.run(for: .zero)
            #expect(counts.value == [3, 4])
            alive.cancel()
            source.invalidate()
        }
    }

    @Test func `a source in several loops is served by one of them`() throws {
        let signal = testSignal(5)
        let (calls, told) = (Box(0), Box(0))
        let inside = Box(0)
        let threads = try (0..<3).map { try RunLoopThread(name: "loop \($0)") }
        let source = try RunLoop.SignalSource(signal: signal) { _, count in
            #expect(inside.increment() == 1)
            calls.increment()
            told.change { $0 += count }
            inside.change { $0 -= 1 }
        }
        for thread in threads { thread.runLoop.add(source) }
        let sent = 300
        try plainThread {
            letThrough(signal)
            for _ in 0..<sent { raiseHere(signal) }
            try waitUntil { told.value >= sent }
        }.join()
        source.invalidate()
        for thread in threads {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        #expect(told.value == sent && calls.value <= sent)
    }

    @Test func `a source invalidated in its own handler is called no more, and the others are`() throws {
        let signal = testSignal(6)
        try onFreshThread { loop in
            letThrough(signal)
            let (once, always) = (Box(0), Box(0))
            let ended = Box(false)
            let source = try RunLoop.SignalSource(signal: signal) { source, _ in
                source.invalidate()
                once.increment()
                #expect(!ended.value)
            }
            source.onInvalidation { ended.value = true }
            let other = try countingSource(signal, always)
            loop.add(source)
            loop.add(other)
            for _ in 0..<3 {
                raiseHere(signal)
                _ = loop.run(for: .zero)
            }
            #expect(once.value == 1 && always.value == 3 && ended.value && !source.isValid)
            other.invalidate()
        }
    }

    @Test func `a run nested in the handler serves signals that arrive meanwhile`() throws {
        let signal = testSignal(7)
        try onFreshThread { loop in
            letThrough(signal)
            let trace = Trace()
            let source = try RunLoop.SignalSource(signal: signal) { source, count in
                trace.add("\(loop.runDepth):\(count)")
                if loop.runDepth < 3 {
                    raiseHere(signal, times: 2)
                    trace.add("\(loop.run(for: patience, returnAfterSourceHandled: true))")
                }
            }
            loop.add(source)
            raiseHere(signal)
            _ = loop.run(for: .zero)
            #expect(trace.description == "1:1 2:2 3:2 handledSource handledSource")
            source.invalidate()
        }
    }

    @Test(arguments: [SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, 0, -1, 65, 1_000_000, Int32.max, Int32.min])
    func `a signal that cannot be handled is refused`(signal: Int32) {
        #expect(throws: RunLoop.SourceError.badSignal(signal)) { try RunLoop.SignalSource(signal: signal) { _, _ in } }
    }

    #if os(Linux)
    @Test(arguments: [32, 33] as [Int32])
    func `a signal that the C library reserves for itself is refused`(signal: Int32) {
        #expect(throws: RunLoop.SourceError.badSignal(signal)) { try RunLoop.SignalSource(signal: signal) { _, _ in } }
    }
    #endif

    @Test func `a source receives SIGCHLD for a child, and a signal from another process`() async {
        await #expect(processExitsWith: .success) {
            letThrough(SIGCHLD, SIGUSR2)
            let results = try onFreshThread { loop in
                let (children, others) = (Box(0), Box(0))
                let sources = [try countingSource(SIGCHLD, children), try countingSource(SIGUSR2, others)]
                for source in sources { loop.add(source) }
                let child = spawn("kill -USR2 \(getpid())")
                while children.value == 0 || others.value == 0 {  // ends: both arrive, or the time limit passes
                    guard loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource else { break }
                }
                #expect(waitForEnd(of: child) == 0)
                return [children.value, others.value]
            }
            #expect(results == [1, 1])
        }
    }

    @Test func `a loop that ends releases the source, and nothing is left behind`() throws {
        let signal = testSignal(8)
        install(.ignored, for: signal)
        let before = installedHandler(of: signal)
        try onFreshThread { loop in
            letThrough(signal)
            loop.add(try RunLoop.SignalSource(signal: signal) { _, _ in })
            #expect(installedHandler(of: signal) != before)
            raiseHere(signal)
            _ = loop.run(for: .zero)
        }
        #expect(installedHandler(of: signal) == before)
    }

    @Test func `signals that were raised but not reported are dropped with the source`() throws {
        let signal = testSignal(9)
        try onFreshThread { loop in
            letThrough(signal)
            let (first, second) = (Box(0), Box(0))
            let source = try countingSource(signal, first)
            loop.add(source)
            raiseHere(signal)
            source.invalidate()
            let later = try countingSource(signal, second)
            loop.add(later)
            _ = loop.run(for: .zero)
            #expect(first.value == 0 && second.value == 0)
            later.invalidate()
        }
    }
}
