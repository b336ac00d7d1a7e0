// Bugs that a review found after the core had been tuned.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.lifetimes)) struct TunedCoreRegressionTests {
    /// The loop released the stale source before it failed the source, and used freed memory, which AddressSanitizer detects.
    @Test func `a source of a reused descriptor that a later handler of the batch invalidates fails before its release`() throws {
        let outcome = try onFreshThread { loop in
            let trace = Trace()
            let (old, new, other) = (Pipe(), Pipe(), Pipe())
            let duplicate = fcntl(old.readEnd, F_DUPFD_CLOEXEC, 0)
            defer { close(duplicate) }
            var stale: RunLoop.DescriptorSource? = try readSource(old) { _ in trace.add("stranger") }
            let ending = Box(stale)
            stale = nil
            loop.add(ending.value!)
            let later = try readSource(other) { _ in
                trace.add("later:\(other.readAll())")
                ending.value?.invalidate()
                ending.value = nil
            }
            loop.add(later)
            _ = loop.run(until: .distantPast)
            // The number now belongs to another file, and the old file is readable in the kernel's set.
            precondition(dup2(new.readEnd, old.readEnd) == old.readEnd)
            old.write()
            other.write()
            _ = loop.run(until: .distantPast)
            _ = loop.run(until: .distantPast)
            return trace.description
        }
        #expect(outcome == "later:x")
    }

    /// The date was stored after the lookup of the timer's loop. A date set between a loop's claim and its reading of the date was lost.
    @Test func `a date that one thread sets while another adds the timer is never lost`() throws {
        let thread = try RunLoopThread(name: "dates")
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        for _ in 0..<300 {
            let fired = Gate()
            let timer = RunLoop.Timer.onDemand { _ in fired.open() }
            let start = Gate()
            let setter = plainThread {
                start.wait()
                timer.nextFire = .now
            }
            start.open()
            thread.runLoop.add(timer)
            try setter.join()
            fired.wait()
            timer.invalidate()
        }
    }

    /// If another thread moved the timer to another loop, a date set on the first loop's thread was queued at that loop, and so was lost.
    @Test func `a date that the loop's thread sets while another thread moves the timer is never lost`() throws {
        let threads = try (0..<2).map { try RunLoopThread(name: "moves \($0)") }
        defer {
            for thread in threads {
                thread.stop()
                #expect(thread.join(timeout: patience))
            }
        }
        let (from, to) = (threads[0].runLoop, threads[1].runLoop)
        for _ in 0..<300 {
            let fired = Gate()
            let timer = RunLoop.Timer.onDemand { _ in fired.open() }
            from.add(timer)
            let isSet = Gate()
            from.perform {
                timer.nextFire = .now
                isSet.open()
            }
            from.remove(timer)
            to.add(timer)
            isSet.wait()
            fired.wait()
            timer.invalidate()
        }
    }
}
