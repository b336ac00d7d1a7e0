// The run loop inside GLib's (docs/embedding.md).

import CGLib
import Embedding
import EventLoop
import TestSupport
import Testing

/// A GLib context of its own for each test, and a run loop that it drives.
private func inGLib(_ body: @escaping @Sendable (RunLoop, GLibContext, GLibHost, Trace) throws -> Void) throws {
    try onFreshThread { loop in
        let context = GLibContext()
        try body(loop, context, GLibHost(loop, context: context.pointer), Trace())
    }
}

@Suite(.bounded) struct GLibHostTests {
    @Test func `GLib's loop serves timers, posts, sources and actors of the run loop`() throws {
        try inGLib { loop, context, host, trace in
            let pipe = Pipe()
            loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add(pipe.readAll()) })
            loop.add(RunLoop.Timer(after: .milliseconds(10)) { _ in trace.add("timer") })
            let poster = plainThread {
                loop.perform { trace.add("post") }
                pipe.write("pipe")
            }
            let worker = Worker(loop)
            Task(executorPreference: loop) { await worker.add("job", to: trace) }  // not on the pool, whose threads the tests block
            try context.iterate("all of it") { trace.list.count == 4 }
            #expect(trace.list.sorted() == ["job", "pipe", "post", "timer"])
            try poster.join()
            withExtendedLifetime(host) {}
        }
    }

    @Test func `GLib's own sources take their turns beside a busy run loop`() throws {
        try inGLib { loop, context, host, trace in
            let again = Box<(@Sendable () -> Void)?>(nil)
            again.value = { loop.perform { again.value?() } }
            again.value?()
            let timeout = context.addTimeout(1) { trace.add("GLib") }
            try context.iterate("GLib's timeouts") { trace.list.count >= 5 }
            again.value = nil
            timeout.remove()
            withExtendedLifetime(host) {}
        }
    }

    @Test func `an idle run loop does not wake GLib`() throws {
        try inGLib { loop, context, host, trace in
            loop.addIdleSource()
            while context.iterate() {}  // ends: nothing is left to do
            let passes = loop.statistics.passes
            var woken = 0
            let timeout = context.addTimeout(100) { trace.add("over") }
            while trace.list.isEmpty {  // ends: with the timeout
                context.iterateBlocking()
                woken += 1
            }
            timeout.remove()
            #expect(loop.statistics.passes == passes)
            #expect(woken == 1)
            withExtendedLifetime(host) {}
        }
    }

    @Test func `a handler may run GLib's loop inside itself, after a step`() throws {
        try inGLib { loop, context, host, trace in
            nonisolated(unsafe) let (host, context) = (host, context)  // SAFETY: used on this thread only
            loop.perform {
                host.step()
                loop.add(RunLoop.Timer(after: .milliseconds(5)) { _ in trace.add("inner timer") })
                let poster = plainThread { loop.perform { trace.add("inner post") } }
                #expect(throws: Never.self) {
                    try context.iterate("the inner loop") { trace.list.count == 2 }
                    try poster.join()
                }
                trace.add("end")
            }
            try context.iterate("the handler") { trace.list.last == "end" }
            #expect(trace.list.sorted() == ["end", "inner post", "inner timer"])
            withExtendedLifetime(host) {}
        }
    }

    @Test func `after the host's end the run loop runs by itself`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let context = GLibContext()
            do {
                let host = try GLibHost(loop, context: context.pointer)
                withExtendedLifetime(host) {}
            }
            loop.perform { trace.add("post") }
            _ = loop.run(for: .zero)
            #expect(trace.description == "post")
            while context.iterate() {}  // ends: nothing is left to do
        }
    }

    @Test func `posts of several threads are not lost`() throws {
        try inGLib { loop, context, host, _ in
            loop.addIdleSource()
            let count = Box(0)
            let producers = (0..<4).map { _ in plainThread { for _ in 0..<2_500 { loop.perform { count.increment() } } } }
            try context.iterate("10,000 posts") { count.value == 10_000 }
            for producer in producers { try producer.join() }
            withExtendedLifetime(host) {}
        }
    }
}
