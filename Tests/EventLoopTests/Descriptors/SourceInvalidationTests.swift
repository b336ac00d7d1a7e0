// The end of a source (semantics 4.20 to 4.22; API: onInvalidation):
//  5. onInvalidation runs on the owning thread, after the event has left every base of every loop, when no call of the handler is in
//     progress or can follow. If the source was never added, it runs at once on the caller's thread. If the source is already invalid,
//     it also runs at once. Invalidating from another thread wakes the loop. A source can have several closures; each is called once.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory, .threads)) struct SourceInvalidationTests {
    // MARK: Where and when

    @Test func `a source that was never added calls onInvalidation at once, on the caller's thread`() throws {
        let pipe = Pipe()
        let trace = Trace()
        let source = try readSource(pipe) { _ in }
        let here = currentThreadID()
        source.onInvalidation { trace.add("told here \(currentThreadID() == here)") }
        source.invalidate()
        trace.add("invalidated")
        #expect(trace.description == "told here true invalidated")
    }

    @Test func `a source invalidated in its own handler calls onInvalidation after the handler has returned`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let here = currentThreadID()
            let source = try readSource(pipe) { source in
                trace.add("begin")
                source.invalidate()
                trace.add("valid \(source.isValid), in the mode \(loop.contains(source)), end")
            }
            source.onInvalidation { trace.add("told here \(currentThreadID() == here)") }
            loop.add(source)
            pipe.write()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "begin valid false, in the mode false, end told here true -> finished")
    }

    @Test func `a source invalidated in a nested run's callout calls onInvalidation after its outer call has returned`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let source = try readSource(pipe) { source in
                trace.add("begin")
                loop.perform {
                    source.invalidate()
                    trace.add("invalidated")
                }
                _ = loop.run(for: .milliseconds(5))
                trace.add("end")
            }
            source.onInvalidation { trace.add("told") }
            loop.add(source)
            pipe.write()
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "begin invalidated end told")
    }

    @Test func `a source invalidated by another thread calls onInvalidation on its sleeping loop's thread, and the run ends`() throws {
        let outcome = try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let here = currentThreadID()
            let source = try readSource(pipe) { _ in }
            source.onInvalidation { trace.add("told here \(currentThreadID() == here)") }
            loop.add(source)
            let other = plainThread {
                try waitUntilAsleep(loop)
                source.invalidate()
                return source.isValid
            }
            trace.add("-> \(loop.run(for: patience)), valid \(try other.join())")
            return trace.description
        }
        #expect(outcome == "told here true -> finished, valid false")
    }

    @Test func `a source invalidated by another thread during its handler calls onInvalidation after the handler has returned`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let stage = Box(0)
            let here = currentThreadID()
            let source = try readSource(pipe) { _ in
                trace.add("begin")
                stage.value = 1
                try? waitUntil { stage.value == 2 }
                trace.add("end")
            }
            source.onInvalidation { trace.add("told here \(currentThreadID() == here)") }
            loop.add(source)
            pipe.write()
            let other = plainThread {
                try waitUntil { stage.value == 1 }
                source.invalidate()
                trace.add("invalidated")
                stage.value = 2
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "begin invalidated end told here true -> finished")
    }

    @Test func `a source invalidated by another thread while the loop is not running calls onInvalidation on its loop's thread`() throws {
        let told = Box<UInt>(0)
        let here = try onFreshThread { loop in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            source.onInvalidation { told.value = currentThreadID() }
            loop.add(source)
            _ = loop.run(for: .zero)
            try plainThread { source.invalidate() }.join()
            return currentThreadID()
        }
        #expect(told.value == here)
    }

    @Test func `a source calls each of several onInvalidation closures once, and a late one at once`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            source.onInvalidation { trace.add("one") }
            source.onInvalidation { trace.add("two") }
            loop.add(source)
            _ = loop.run(for: .zero)
            source.invalidate()
            source.invalidate()
            _ = loop.run(for: .zero)
            let both = trace.take().split(separator: " ").sorted().joined(separator: " ")
            try plainThread {
                let here = currentThreadID()
                source.onInvalidation { trace.add("late here \(currentThreadID() == here)") }
                trace.add("after")
            }.join()
            return "\(both) \(trace)"
        }
        #expect(trace == "one two late here true after")
    }

    @Test func `a custom source calls onInvalidation as well`() throws {
        let trace = try inManualTime { loop, _, trace in
            let source = RunLoop.CustomSource(
                cancel: { _, mode in trace.add("cancel:\(mode)") },
                perform: { trace.add("perform") })
            source.onInvalidation { trace.add("told") }
            loop.add(source)
            source.signal()
            source.invalidate()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "cancel:default told -> finished")
    }

    #if os(Linux)
    @Test func `a source calls onInvalidation after the kernel has released its descriptor in every mode`() throws {
        let (before, told) = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let told = Box(-1)
            let source = try readSource(pipe) { _ in }
            source.onInvalidation { told.value = kernelWatches(of: pipe.readEnd) }
            for mode in ["default", "second", "third"] as [RunLoop.Mode] {
                loop.add(source, forMode: mode)
                _ = loop.run(mode: mode, for: .zero)
            }
            let before = kernelWatches(of: pipe.readEnd)
            source.invalidate()
            _ = loop.run(for: .zero)
            return (before, told.value)
        }
        #expect(before == 3)
        #expect(told == 0)
    }

    @Test func `a source in two loops calls onInvalidation once, on the thread of one, after both have released its descriptor`() throws {
        let threads = [try RunLoopThread(name: "first"), try RunLoopThread(name: "second")]
        let pipe = Pipe()
        let told = Box<[String]>([])
        let source = try readSource(pipe) { _ in }
        source.onInvalidation {
            let onLoop = threads.contains { $0.runLoop.isCurrent }
            told.change { $0.append("on a loop \(onLoop), watched \(kernelWatches(of: pipe.readEnd))") }
        }
        for thread in threads {
            thread.runLoop.add(source)
            try thread.runLoop.performAndWait {}
            try waitUntilAsleep(thread.runLoop)
        }
        let before = kernelWatches(of: pipe.readEnd)
        source.invalidate()
        for thread in threads {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        #expect(before == 2)
        #expect(told.value == ["on a loop true, watched 0"])
    }
    #endif

    @Test func `the number of a descriptor that is closed in onInvalidation can be watched again at once`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (old, new) = (Pipe(), Pipe())
            let number = old.readEnd
            let source = try readSource(old) { source in source.invalidate() }
            source.onInvalidation {
                trace.add("told")
                precondition(dup2(new.readEnd, number) == number)
                let next = try! RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in  // the number is open
                    withExtendedLifetime(old) { trace.add("new:\(new.readAll())") }
                }
                loop.add(next)
                new.write("ab")
            }
            loop.add(source)
            old.write()
            trace.add("-> \(loop.run(until: .ms(50))), \(source.failure == nil)")
            return trace.description
        }
        #expect(trace == "told new:ab -> timedOut, true")
    }
}
