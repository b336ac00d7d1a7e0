// RunLoopThreadGroup (API; semantics 9.24):
//  - A group is a fixed set of loops, each on its own thread; `next` picks them round robin and can be called from any thread.
//  - setup and teardown run once for each loop; init throws the error of a setup and leaves no thread behind.
//  - shutdown stops and joins every thread; with a timeout, it names the threads that have not ended. On a member thread it is a
//    precondition failure.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded, .tags(.threads)) struct RunLoopThreadGroupTests {
    @Test func `a group has the requested number of loops, each on a thread of its own`() throws {
        let group = try RunLoopThreadGroup(count: 3)
        defer { group.shutdown() }
        let threads = try group.runLoops.map { try $0.performAndWait { currentThreadID() } }
        #expect(group.runLoops.count == 3)
        #expect(Set(group.runLoops.map(ObjectIdentifier.init)).count == 3)
        #expect(Set(threads).count == 3)
    }

    @Test func `next picks the loops round robin, in their order`() throws {
        let group = try RunLoopThreadGroup(count: 3)
        defer { group.shutdown() }
        let picked = (0..<7).map { _ in
            let loop = group.next()
            return group.runLoops.firstIndex { $0 === loop }!
        }
        #expect(picked == [0, 1, 2, 0, 1, 2, 0])
    }

    @Test func `next returns each loop equally often when many threads call it`() throws {
        let group = try RunLoopThreadGroup(count: 3)
        defer { group.shutdown() }
        let counts = Box([0, 0, 0])
        let askers = (0..<4).map { _ in
            plainThread {
                for _ in 0..<300 {
                    let loop = group.next()
                    let index = group.runLoops.firstIndex { $0 === loop }!
                    counts.change { $0[index] += 1 }
                }
            }
        }
        for asker in askers { try asker.join() }
        #expect(counts.value == [400, 400, 400])
    }

    @Test func `setup and teardown run once for each loop, on its thread`() throws {
        let trace = Trace()
        let group = try RunLoopThreadGroup(
            count: 3,
            setup: { loop in trace.add("setup \(loop.isCurrent)") },
            teardown: { loop in trace.add("teardown \(loop.isCurrent)") })
        #expect(trace.take() == "setup true setup true setup true")
        group.shutdown()
        #expect(trace.take() == "teardown true teardown true teardown true")
    }

    @Test func `init throws the error of a setup and leaves no thread behind`() throws {
        struct Refused: Error {}
        let loops = Box<[RunLoop]>([])
        #expect(throws: Refused.self) {
            try RunLoopThreadGroup(
                count: 3,
                setup: { loop in
                    let count = loops.change { list in
                        list.append(loop)
                        return list.count
                    }
                    if count == 2 { throw Refused() }
                })
        }
        #expect(loops.value.count >= 2)
        #expect(loops.value.allSatisfy { !$0.isValid })
    }

    @Test func `shutdown stops and joins every thread, and can be repeated`() throws {
        let group = try RunLoopThreadGroup(count: 3)
        group.shutdown()
        #expect(group.runLoops.allSatisfy { !$0.isValid })
        group.shutdown()
        #expect(group.shutdown(timeout: .zero).isEmpty)
    }

    @Test func `shutdown runs the performs that were accepted before it`() throws {
        let group = try RunLoopThreadGroup(count: 2)
        let performed = Box(0)
        for _ in 0..<100 { group.next().perform { performed.increment() } }
        group.shutdown()
        #expect(performed.value == 100)
    }

    @Test func `shutdown with a timeout names the threads that are stuck, and ends the others`() throws {
        let (entered, gate) = (Gate(), Gate())
        let group = try RunLoopThreadGroup(count: 3)
        let stuck = group.runLoops[1]
        stuck.perform {
            entered.open()
            gate.wait()
        }
        entered.wait()
        var remaining = group.shutdown(timeout: .milliseconds(100))
        // On a busy machine, the other threads may need longer to end.
        try waitUntil("only the stuck thread is left") {
            if remaining.count > 1 { remaining = group.shutdown(timeout: .milliseconds(100)) }
            return remaining.count <= 1
        }
        #expect(remaining.map { $0.runLoop === stuck } == [true])
        gate.open()
        #expect(remaining.allSatisfy { $0.join(timeout: patience) })
        #expect(group.runLoops.map(\.isValid) == [false, false, false])
        #expect(group.shutdown(timeout: .zero).isEmpty)
    }

    @Test func `each shutdown names the stuck thread until its handler returns`() throws {
        let (entered, gate) = (Gate(), Gate())
        let group = try RunLoopThreadGroup(count: 3, name: "stuck")
        group.runLoops[1].perform {
            entered.open()
            gate.wait()
        }
        entered.wait()
        let message = "run loop thread \"stuck-1\" was asked to stop and is still in a handler\n"
        let told = Box(0)
        group.shutdown(reportingEvery: .milliseconds(1)) { text in
            // The other threads may need a moment to end, too.
            if text == message && told.increment() == 3 { gate.open() }
        }
        #expect(told.value >= 3)
        #expect(group.runLoops.allSatisfy { !$0.isValid })
    }

    @Test func `shutdown with a timeout returns as soon as all threads have ended`() throws {
        let group = try RunLoopThreadGroup(count: 2)
        #expect(group.shutdown(timeout: .seconds(3600)).isEmpty)
    }

    @Test func `shutdown from a member thread traps with a message`() async throws {
        let blocking = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onMemberThread { $0.shutdown() }
        }
        #expect(String(decoding: try #require(blocking).standardErrorContent, as: UTF8.self).contains("shutdown"))
        let timed = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onMemberThread { _ = $0.shutdown(timeout: .zero) }
        }
        #expect(String(decoding: try #require(timed).standardErrorContent, as: UTF8.self).contains("shutdown"))
    }
}

/// Calls `body` with a new group, on a thread of that group.
private func onMemberThread(_ body: @escaping @Sendable (RunLoopThreadGroup) -> Void) throws {
    let group = try RunLoopThreadGroup(count: 2)
    try group.next().performAndWait { body(group) }
}
