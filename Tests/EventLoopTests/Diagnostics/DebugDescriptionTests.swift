// debugDescription (API) shows every mode with its sources, timers (and their next dates), observers and queued blocks. It shows each item
// with its label or, without a label, with the place where it was created.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct DebugDescriptionTests {
    @Test func `it names the modes`() throws {
        let text = try inManualTime { loop, _, _ in
            loop.add(RunLoop.CustomSource(perform: {}), forMode: "a mode of mine")
            return loop.debugDescription
        }
        #expect(text.contains("default"))
        #expect(text.contains("a mode of mine"))
    }

    @Test func `it shows the label of every item`() throws {
        let text = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            loop.add(RunLoop.CustomSource(label: "my custom source", perform: {}))
            loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, label: "my descriptor source") { _, _ in })
            loop.add(RunLoop.Timer(fireAt: .ms(10), label: "my timer") { _ in })
            loop.add(RunLoop.Observer(activities: .all, label: "my observer") { _, _ in })
            return withExtendedLifetime(pipe) { loop.debugDescription }
        }
        for label in ["my custom source", "my descriptor source", "my timer", "my observer"] {
            #expect(text.contains(label), "\(text)")
        }
    }

    @Test func `it shows where every item was created`() throws {
        let (text, lines) = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let first: UInt = #line + 1
            loop.add(RunLoop.CustomSource(perform: {}))
            loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in })
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in })
            loop.add(RunLoop.Timer(after: .milliseconds(10)) { _ in })
            RunLoop.Timer.scheduled(every: .milliseconds(10)) { _ in }
            loop.add(RunLoop.Observer(activities: .all) { _, _ in })
            return withExtendedLifetime(pipe) { (loop.debugDescription, Array(first..<first + 6)) }
        }
        for line in lines { #expect(text.contains("DebugDescriptionTests.swift:\(line)"), "line \(line) in \(text)") }
    }

    @Test func `it shows the next date of a timer`() throws {
        let texts = try inManualTime { loop, _, _ in
            let timer = RunLoop.Timer(fireAt: .ms(10), label: "dated") { _ in }
            loop.add(timer)
            let texts = [loop.debugDescription, loop.debugDescription]
            timer.nextFire = .ms(777_777)
            return texts + [loop.debugDescription]
        }
        #expect(texts[0] == texts[1])
        #expect(texts[1] != texts[2])
    }

    @Test func `it shows the number of queued closures`() throws {
        let texts = try inManualTime { loop, _, _ in
            let empty = loop.debugDescription
            loop.performBlock {}
            let one = loop.debugDescription
            loop.performBlock {}
            let two = loop.debugDescription
            _ = loop.run(for: .zero)
            return [empty, one, two]
        }
        #expect(Set(texts).count == 3)
    }

    @Test func `it does not show items that were invalidated`() throws {
        let text = try inManualTime { loop, _, _ in
            let timer = RunLoop.Timer(fireAt: .ms(10), label: "short-lived") { _ in }
            loop.add(timer)
            let before = loop.debugDescription.contains("short-lived")
            timer.invalidate()
            return "\(before) \(loop.debugDescription.contains("short-lived"))"
        }
        #expect(text == "true false")
    }

    @Test func `it is available on another thread, in a callout, and for a loop that has ended`() throws {
        let thread = try RunLoopThread(name: "described")
        thread.runLoop.add(RunLoop.Timer(fireAt: .distantFuture, label: "for ever") { _ in })
        #expect(thread.runLoop.debugDescription.contains("for ever"))
        #expect(try thread.runLoop.performAndWait { thread.runLoop.debugDescription.contains("for ever") })
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(!thread.runLoop.debugDescription.contains("for ever"))
    }
}
