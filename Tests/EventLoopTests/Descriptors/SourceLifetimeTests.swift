// The end of a source without a call of invalidate, and the objects that a source retains (semantics 4.23):
//  6. A loop that ends invalidates the kernel sources that are in no other loop and that no other code retains. It does so on its thread
//     after `teardown`. It releases other sources, which stay valid. The last release of a source invalidates it, on any thread. Handlers
//     are released on their loop's thread if there is one.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory, .threads)) struct SourceLifetimeTests {
    // MARK: The loop ends

    @Test func `a loop that ends invalidates the descriptor sources that only it retains, on its thread, after teardown`() throws {
        let trace = Trace()
        let pipe = Pipe()
        let owner = Box<UInt>(0)
        let thread = try RunLoopThread(
            name: "ending",
            setup: { loop in
                owner.value = currentThreadID()
                let source = try readSource(pipe) { _ in }
                source.onInvalidation { trace.add("told here \(currentThreadID() == owner.value), loop valid \(loop.isValid)") }
                loop.add(source)
            },
            teardown: { _ in trace.add("teardown") })
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(trace.list.first == "teardown")
        #expect(trace.list.dropFirst().first?.hasPrefix("told here true") == true, "\(trace)")
        #expect(trace.list.count == 2)
    }

    @Test func `a plain thread that ends invalidates the descriptor sources that only its loop retains`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            let here = currentThreadID()
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            source.onInvalidation { trace.add("told here \(currentThreadID() == here)") }
            loop.add(source)
            loop.add(source, forMode: "other")
            _ = loop.run(for: .zero)
            trace.add("ending")
        }
        #expect(trace.description == "ending told here true")
    }

    @Test func `a source that other code retains stays valid when its loop ends, and is served on another loop`() throws {
        let trace = Trace()
        let pipe = Pipe()
        let source = try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") }
        source.onInvalidation { trace.add("told") }
        try onFreshThread { loop in
            loop.add(source)
            _ = loop.run(for: .zero)
        }
        trace.add("ended, valid \(source.isValid)")
        pipe.write("ab")
        try onFreshThread { loop in
            loop.add(source)
            _ = loop.run(for: .zero)
        }
        #expect(trace.description == "ended, valid true read:ab")
    }

    @Test func `a source that is made to end with its loop does, on the loop's thread, although other code retains it`() throws {
        let trace = Trace()
        let pipe = Pipe()
        let source = try readSource(pipe) { _ in }
        source.endWithLoop()
        try onFreshThread { loop in
            let here = currentThreadID()
            source.onInvalidation { trace.add("told here \(currentThreadID() == here)") }
            loop.add(source)
            loop.add(source, forMode: "other")
            _ = loop.run(for: .zero)
            trace.add("ending, valid \(source.isValid)")
        }
        #expect(trace.description == "ending, valid true told here true" && !source.isValid)
    }

    @Test func `a source in two loops stays valid when one of them ends`() throws {
        let trace = Trace()
        let survivor = try RunLoopThread(name: "survivor")
        defer {
            survivor.stop()
            #expect(survivor.join(timeout: patience))
        }
        let pipe = Pipe()
        let read = Box(false)
        try onFreshThread { loop in
            let source = try readSource(pipe) { _ in
                trace.add("read:\(pipe.readAll())")
                read.value = true
            }
            source.onInvalidation { trace.add("told") }
            loop.add(source)
            survivor.runLoop.add(source)
            _ = loop.run(for: .zero)
        }
        trace.add("ended")
        pipe.write("ab")
        try waitUntil { read.value }
        #expect(trace.description == "ended read:ab")
    }

    // MARK: The last release

    @Test func `the last release of a source that was never added invalidates it`() throws {
        let trace = Trace()
        let pipe = Pipe()
        func makeAndDrop() throws {
            let source = try readSource(pipe) { _ in }
            source.onInvalidation { trace.add("told") }
            trace.add("made")
        }
        try makeAndDrop()
        trace.add("dropped")
        #expect(trace.description == "made told dropped")
    }

    @Test func `the last release of a source that was removed invalidates it`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            func addAndRemove() throws {
                let source = try readSource(pipe) { _ in trace.add("called") }
                source.onInvalidation { trace.add("told") }
                loop.add(source)
                _ = loop.run(for: .zero)
                loop.remove(source)
                trace.add("removed")
            }
            try addAndRemove()
            pipe.write()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            _ = loop.run(for: .zero)
            return trace.description
        }
        #expect(trace == "removed told")
    }

    // MARK: Objects that a handler retains

    @Test func `a handler is released when its source is invalidated, even if the source is retained`() throws {
        let trace = try inManualTime { loop, _, trace in
            func make() throws -> RunLoop.DescriptorSource {
                let canary = Canary { trace.add("released") }
                let pipe = Pipe()
                let source = try readSource(pipe) { _ in withExtendedLifetime(canary) {} }
                loop.add(source)
                return source
            }
            let source = try make()
            _ = loop.run(for: .zero)
            trace.add("invalidate")
            source.invalidate()
            _ = loop.run(for: .zero)
            return withExtendedLifetime(source) { trace.description }
        }
        #expect(trace == "invalidate released")
    }

    @Test func `a handler is released on its loop's thread, whichever thread invalidates the source`() throws {
        let released = Box<[UInt]>([])
        let thread = try RunLoopThread(name: "owner")
        let owner = try thread.runLoop.performAndWait { currentThreadID() }
        func makeSources() throws -> [RunLoop.Source] {
            func canary() -> Canary { Canary { released.change { $0.append(currentThreadID()) } } }
            let pipe = Pipe()
            let descriptor = try readSource(pipe) { [canary = canary()] _ in withExtendedLifetime(canary) {} }
            let custom = RunLoop.CustomSource(perform: { [canary = canary()] in withExtendedLifetime(canary) {} })
            return [descriptor, custom]
        }
        let sources = try makeSources()
        for source in sources { thread.runLoop.add(source) }
        try thread.runLoop.performAndWait {}
        try waitUntilAsleep(thread.runLoop)
        for source in sources { source.invalidate() }
        try waitUntil { released.value.count == 2 }
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(released.value == [owner, owner])
    }

    @Test func `a loop that ends releases its handlers on its thread`() throws {
        let released = Box<[UInt]>([])
        let owner = try onFreshThread { loop in
            func add() throws {
                func canary() -> Canary { Canary { released.change { $0.append(currentThreadID()) } } }
                let pipe = Pipe()
                loop.add(try readSource(pipe) { [canary = canary()] _ in withExtendedLifetime(canary) {} })
                loop.add(RunLoop.Timer(fireAt: .distantFuture) { [canary = canary()] _ in withExtendedLifetime(canary) {} })
                loop.add(RunLoop.Observer(activities: .all) { [canary = canary()] _, _ in withExtendedLifetime(canary) {} })
                loop.add(RunLoop.CustomSource(perform: { [canary = canary()] in withExtendedLifetime(canary) {} }))
                loop.performBlock { [canary = canary()] in withExtendedLifetime(canary) {} }
            }
            try add()
            return currentThreadID()
        }
        #expect(released.value == Array(repeating: owner, count: 5))
    }
}
