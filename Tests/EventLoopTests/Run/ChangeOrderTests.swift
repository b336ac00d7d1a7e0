// Rule proved here (semantics 9.11): what another thread changes before it queues a closure or a job, signals a source, sends a message or sets
// a timer takes effect before that is called. A closure that closes a descriptor thus comes after the kernel has let go of the descriptor.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// Something that another thread asks of the loop after it has invalidated a source. `performAsync` is queued as `performAndWait` is.
enum Request: CaseIterable, Sendable {
    case perform, performInSeveralModes, performAndWait, block, blockInSeveralModes, job, signal, timer

    /// Prepares the request on the loop's thread. The result makes it, on another thread, and returns when it is queued.
    func prepare(_ loop: RunLoop, _ body: @escaping @Sendable () -> Void) -> @Sendable () throws -> Void {
        let modes: [RunLoop.Mode] = [.default, "another"]
        switch self {
        case .perform: return { loop.perform(body) }
        case .performInSeveralModes: return { loop.perform(inModes: modes, body) }
        case .performAndWait:
            return {
                let waiter = plainThread { try loop.performAndWait { body() } }
                try waitUntil("the perform is queued") { loop.debugDescription.contains("queued performs: 1") }
                withExtendedLifetime(waiter) {}
            }
        case .block: return { loop.performBlock(body) }
        case .blockInSeveralModes: return { loop.performBlock(inModes: modes, body) }
        case .job:
            // Its first job goes to the loop at once, from the thread that makes the task.
            return { Task(executorPreference: loop) { body() } }
        case .signal:
            let source = loop.addSource { _ in body() }
            return { source.signal() }
        case .timer: return { loop.perform(after: .zero, body) }
        }
    }
}

@Suite struct ChangeOrderTests {
    @Test(arguments: Request.allCases)
    func `what another thread changed before its request takes effect first`(request: Request) throws {
        let wasWatched = try onFreshThread { loop -> Bool? in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            loop.add(source)
            loop.addIdleSource()
            _ = loop.run(until: .distantPast)
            let membership = source.existingMembership(of: loop)!  // it was added
            precondition(membership.anyRegistration != nil, "the first pass has registered the source")
            let wasWatched = Box<Bool?>(nil)
            let make = request.prepare(loop) {
                wasWatched.value = membership.anyRegistration != nil
                loop.stop()
            }
            // Between the start of the pass, which carries out changes, and the steps that perform what is queued. An observer that ended here
            // would be a change of the owner's, which carries out the others.
            let hasAsked = Box(false)
            let observer = RunLoop.Observer(activities: .beforeSources) { _, _ in
                if hasAsked.value { return }
                hasAsked.value = true
                let other = plainThread {
                    source.invalidate()
                    try make()
                }
                #expect(throws: Never.self) { try other.join() }
            }
            loop.add(observer)
            #expect(loop.run(for: patience) == .stopped)
            withExtendedLifetime(pipe) {}
            return wasWatched.value
        }
        #expect(wasWatched == false)
    }

    @Test func `what another thread changed before it sent a message takes effect before the message is handed out`() throws {
        let wasWatched = try onFreshThread { loop -> Bool? in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            loop.add(source)
            _ = loop.run(until: .distantPast)
            let membership = source.existingMembership(of: loop)!  // it was added
            let wasWatched = Box<Bool?>(nil)
            let second = RunLoop.Port { _, message in
                if message.id == 1 { return }
                wasWatched.value = membership.anyRegistration != nil
                loop.stop()
            }
            let first = RunLoop.Port { _, _ in
                // In the step that hands out messages, before the turn of the second port.
                let other = plainThread {
                    source.invalidate()
                    try second.send(RunLoop.PortMessage(id: 2))
                }
                #expect(throws: Never.self) { try other.join() }
            }
            loop.add(first)
            loop.add(second)
            try first.send(RunLoop.PortMessage(id: 1))
            try second.send(RunLoop.PortMessage(id: 1))
            #expect(loop.run(for: patience) == .stopped)
            withExtendedLifetime(pipe) {}
            return wasWatched.value
        }
        #expect(wasWatched == false)
    }

    @Test func `the last callout of a source that was invalidated before a perform comes before it`() throws {
        let order = try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            source.onInvalidation { trace.add("end") }
            loop.add(source)
            _ = loop.run(until: .distantPast)
            let hasAsked = Box(false)
            let observer = RunLoop.Observer(activities: .beforeSources) { _, _ in
                if hasAsked.value { return }
                hasAsked.value = true
                let other = plainThread {
                    source.invalidate()
                    loop.perform { trace.add("perform") }
                }
                #expect(throws: Never.self) { try other.join() }
            }
            loop.add(observer)
            _ = loop.run(until: .distantPast)
            withExtendedLifetime(pipe) {}
            return trace.description
        }
        #expect(order == "end perform")
    }
}
