// Rule proved here (semantics 9.11): another thread makes a change, and then queues a closure or a job, signals a source, sends a message
// or sets a timer. The change takes effect before the loop makes the call. So a closure that closes a descriptor runs after the kernel has
// stopped watching the descriptor.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// A request that another thread makes after it has invalidated a source. `performAsync` queues a closure as `performAndWait` does.
enum Request: CaseIterable, Sendable {
    case perform, performInSeveralModes, performAndWait, block, blockInSeveralModes, job, signal, timer

    /// Prepares the request on the loop's thread. The returned closure makes the request on another thread, and returns when it is queued.
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
            // The task's first job goes to the loop at once, from the thread that makes the task.
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
    func `a change that another thread makes before its request takes effect first`(request: Request) throws {
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
            // The observer acts between the start of the pass, which carries out changes, and the steps that perform queued work. If the
            // observer itself ended the source, that would be a change of the owner's, which carries out the other changes.
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

    @Test func `a change that another thread makes before it sends a message takes effect before the delivery`() throws {
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
                // Acts in the step that delivers messages, before the turn of the second port.
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

    @Test func `if a source is invalidated before a perform is queued, its last callout precedes the perform`() throws {
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
