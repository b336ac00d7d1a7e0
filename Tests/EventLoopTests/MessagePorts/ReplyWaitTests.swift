// Rules proved here, of waiting for replies:
//  - The reader of a connection passes the reading on when it returns. The next reader reads or passes it on, even if it has timed out.
//  - A reply that is in the socket arrives, also if a sender notices the end of the connection first.
//  - Every timeout is valid: zero or less, in the past, and infinite. That of a connection ends it also among signals.
//  - A run that waits for a reply returns although a nested run in the same mode has taken its wake-up.
//  - A thread that is cancelled in a call leaves no lock held, and does not stay the reader.
//  - A request ends if its loop is told to end, or if its task was cancelled before.
//  - A request that is abandoned in its middle is void, and does not keep its message.

import CLibevent
import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Returns the gate that lets the engine's thread go on.
private func hold(_ engine: PortEngine) -> EventLoopTestSupport.Gate {
    let (begun, gate) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
    engine.runLoop.perform {
        begun.open()
        gate.wait()
    }
    begun.wait()
    return gate
}

@Suite(.bounded, .tags(.threads)) struct ReplyWaitTests {
    @Test func `a thread that becomes the reader just as it times out passes the reading on`() throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let connection = try RemoteConnection(
            PortRegistration.find(try PortName(name), timeout: .zero), engine: try PortEngine.shared(), maximumLength: 100)
        for becomesReader in [true, false] {
            // A thread waits while another one reads.
            let waiter = ReplyWaiter(.thread)
            try connection.sendRequest(waiter, id: 1, data: [], descriptors: [], deadline: .distantFuture)
            connection.state.withLock { state in
                (state.reader, state.abandonedReplies) = (.thread, 0)
                waiter.followerTicket = state.followers.appendForTicket(waiter)
            }
            waiter.latch = EventLoop.Latch()
            // It times out, and before it can abandon its request, the reader returns.
            if becomesReader { connection.stopReading() }
            let result = connection.abandon(waiter, .replyTimedOut, unlessItMustRead: true)
            #expect((result == nil) == becomesReader)
            // A thread that has returned never becomes the reader. The new reader reads, abandons its request and passes the reading on.
            if becomesReader {
                #expect(throws: RunLoop.PortError.replyTimedOut) { try connection.readUntilReply(waiter, .distantPast).get() }
            } else {
                connection.stopReading()
            }
            #expect(connection.state.withLock { $0.reader == .engine && $0.followers.isEmpty && $0.waiters.isEmpty })
        }
        connection.end(.becameInvalid)
        port.invalidate()
    }

    @Test func `a thread that has its reply passes the reading on to one that waits`() throws {
        let name = freshName()
        let held = EventLoopTestSupport.Gate()
        let port = try RunLoop.LocalMessagePort(name: name) { _, id, _ in
            if id == 2 { held.wait() }
            return [UInt8(id)]
        }
        let connection = try RemoteConnection(
            PortRegistration.find(try PortName(name), timeout: .zero), engine: try PortEngine.shared(), maximumLength: 100)
        let request: @Sendable (Int32) throws -> [UInt8]? = { id in
            let waiter = ReplyWaiter(.thread)
            try connection.sendRequest(waiter, id: id, data: [], descriptors: [], deadline: .distantFuture)
            return try connection.awaitReply(waiter, .now.advanced(by: patience))
        }
        let leader = plainThread { try request(1) }
        try waitUntil("a thread reads the connection") { connection.state.withLock { $0.reader == .thread } }
        let follower = plainThread { try request(2) }
        try waitUntil("the second thread waits for the first") { connection.state.withLock { $0.followers.count == 1 } }
        // There is no reply before this, and none to the second request before the first thread has returned.
        let running = RunningLoop { $0.add(port) }
        #expect(try leader.join() == [1])
        held.open()
        #expect(try follower.join() == [2])
        connection.end(.becameInvalid)
        port.invalidate()
        try running.end()
    }

    @Test func `a reply times out even while replies to others are left to read`() throws {
        let (near, far) = connectedSockets()
        defer { close(far) }
        let engine = try PortEngine.shared()
        let connection = try RemoteConnection(near, engine: engine, maximumLength: 1 << 16)
        // Holds the engine, which would read the rest before the test has counted it.
        let counted = hold(engine)
        let waiter = ReplyWaiter(.thread)
        try connection.sendRequest(waiter, id: 1, data: [], descriptors: [], deadline: .distantFuture)
        connection.state.withLock { $0.reader = .thread }
        // More than a single read takes.
        var reply = OutgoingFrame(.reply, conversation: 1_000, id: 1, body: [UInt8](repeating: 1, count: 50_000))
        for _ in 0..<3 {
            reply.offset = 0
            #expect(reply.send(to: far) == 0)
        }
        #expect(throws: RunLoop.PortError.replyTimedOut) { try connection.readUntilReply(waiter, .distantPast).get() }
        var left = Int32(0)
        #expect(ioctl(near, UInt(FIONREAD), &left) == 0 && left > 0)
        counted.open()
        connection.end(.becameInvalid)
    }

    @Test(arguments: [false, true])
    func `a reply that is in the socket arrives although a sender notices the end first`(isQueued: Bool) throws {
        let (near, far) = connectedSockets()
        let engine = try PortEngine.shared()
        let connection = try RemoteConnection(near, engine: engine, maximumLength: 4 << 20)
        // Holds the engine, which would read the reply at once.
        let ended = hold(engine)
        let (first, second) = (ReplyWaiter(.task), ReplyWaiter(.task))
        try connection.startRequest(first, id: 1, data: [], descriptors: [])
        // There is no room for all of it.
        if isQueued { try connection.startRequest(second, id: 2, data: [UInt8](repeating: 0, count: 4 << 20), descriptors: []) }
        var reply = OutgoingFrame(.reply, conversation: first.conversation, id: 1, body: [7])
        #expect(reply.send(to: far) == 0)
        close(far)
        try waitUntilHungUp(near, "the server has closed the connection")
        if !isQueued {
            #expect(throws: RunLoop.PortError.invalidPort) {
                try connection.send(id: 2, data: [], descriptors: [], deadline: .distantPast)
            }
        }
        ended.open()
        try waitUntil("the connection ends") { connection.state.withLock { $0.isInvalid } }
        let results = connection.state.withLock { _ in [first.result, second.result] }
        let expected: [ReplyWaiter.ReplyResult?] = [.success([7]), isQueued ? .failure(.becameInvalid) : nil]
        #expect(results == expected)
    }

    @Test func `a thread that is cancelled in a call leaves neither the connection nor a name to nobody`() async {
        // In a process of its own, which is killed if a lock stays held.
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let served = try ServedPort { _, _, data in data }
            let remote = try RunLoop.RemoteMessagePort(name: served.name)
            let name = try PortName(freshName())
            let cancelled = plainThread {
                pthread_cancel(pthread_self())
                let taken = try? PortRegistration.take(name, backlog: 1)
                taken?.0.withdraw()
                try? remote.send(id: 1, timeout: patience)
                let reply = try? remote.request(id: 2, data: [2], sendTimeout: patience, replyTimeout: patience)
                // What a task's request does on the thread on which the task runs.
                try? remote.connection.startRequest(ReplyWaiter(.task), id: 3, data: [], descriptors: [])
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                #expect(reply == [2])
                if let taken { close(taken.listener) }
            }
            try cancelled.join()
            #expect(try remote.ask(4, "others") == "others")
            let (registration, listener) = try PortRegistration.take(name, backlog: 1)
            registration.withdraw()
            close(listener)
            try served.end()
        }
    }

    @Test func `a thread that is cancelled while it connects keeps its connection until the next cancellation point`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let served = try ServedPort { _, _, data in data }
            let cancelled = plainThread {
                pthread_cancel(pthread_self())
                let remote = try? RunLoop.RemoteMessagePort(name: served.name)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                #expect(remote?.isValid == true)
            }
            try cancelled.join()
            try served.end()
        }
    }

    #if os(Linux)
    @Test func `a client that waits for room among the server's new clients gives up at its timeout, although signals keep coming`() async {
        // In a process of its own, which a signal's action belongs to.
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in }  // without SA_RESTART: the call is interrupted
            sigaction(SIGUSR1, &action, nil)
            let name = try PortName(freshName())
            let (registration, listener) = try PortRegistration.take(name, backlog: 0)
            // The queue has room for one.
            let first = try PortRegistration.find(name, timeout: .zero)
            let isTimedOut = try plainThread {
                letThrough(SIGUSR1)
                let (thread, isOver) = (currentThreadID(), Box(false))
                let storm = plainThread { while !isOver.value { pthread_kill(pthread_t(thread), SIGUSR1) } }
                var hasGivenUp = false
                do throws(RunLoop.PortError) {
                    close(try PortRegistration.find(name, timeout: .milliseconds(20)))
                } catch {
                    hasGivenUp = error == .sendTimedOut
                }
                isOver.value = true
                try storm.join()
                return hasGivenUp
            }.join()
            #expect(isTimedOut)
            close(first)
            registration.withdraw()
            close(listener)
        }
    }
    #endif

    @Test func `a request that is abandoned after a part of it was sent keeps little of its message, and is void`() throws {
        let (near, far) = connectedSockets()
        defer { close(far) }
        let connection = try RemoteConnection(near, engine: try PortEngine.shared(), maximumLength: 4 << 20)
        // The server reads nothing, so a part of the request fills the connection.
        let waiter = ReplyWaiter(.task)
        try connection.startRequest(waiter, id: 1, data: [UInt8](repeating: 7, count: 4 << 20), descriptors: [])
        let queued = connection.state.withLock { _ in waiter.unsent }
        let unsent = try #require(queued)
        #expect(connection.abandon(waiter, .replyTimedOut) == .failure(.sendTimedOut))
        let (kept, offset) = connection.state.withLock { _ in (unsent.frame.body.count, unsent.frame.offset) }
        #expect(kept <= OutgoingFrame.keptWhenCancelled && offset > 0)
        // The rest has the announced length, and the next request follows it.
        try connection.startRequest(ReplyWaiter(.task), id: 2, data: [5], descriptors: [])
        var decoder = FrameDecoder(maximumLength: 4 << 20)
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        var (ids, areCancelled): ([Int32], [Bool]) = ([], [])
        while ids.count < 2 {  // ends: with the second request, or when nothing arrives in time
            try waitUntilReadable(far, "the rest of the requests")
            let count = recv(far, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            try #require(count > 0)
            buffer[..<count].withUnsafeBytes { decoder.append($0) }
            while let (frame, isCancelled) = try decoder.next() {
                ids.append(frame.id)
                areCancelled.append(isCancelled)
            }
        }
        #expect(ids == [1, 2] && areCancelled == [true, false])
        connection.end(.becameInvalid)
    }

    @Test func `the cost of abandoning unsent requests is linear in their number`() throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let connection = try RemoteConnection(
            PortRegistration.find(try PortName(name), timeout: .zero), engine: try PortEngine.shared(), maximumLength: 1 << 20)
        // Nobody serves the port: this request fills the connection, and further ones wait.
        let first = ReplyWaiter(.task)
        try connection.startRequest(first, id: 1, data: [UInt8](repeating: 0, count: 1 << 20), descriptors: [])
        let before = connection.state.withLock { $0.unsent.testsOnlySteps.value }
        let count = 10_000
        let waiters = try (0..<count).map { _ in
            let waiter = ReplyWaiter(.task)
            try connection.startRequest(waiter, id: 1, data: [], descriptors: [])
            return waiter
        }
        // First in the worst order for a search from the front, then in the best.
        for waiter in waiters.suffix(count / 2).reversed() + waiters.prefix(count / 2) {
            #expect(connection.abandon(waiter, .replyTimedOut) == .failure(.sendTimedOut))
        }
        let (steps, left) = connection.state.withLock { ($0.unsent.testsOnlySteps.value - before, $0.unsent.count) }
        #expect(steps <= 3 * count && left == 1, "\(steps) steps for \(count) requests")
        connection.end(.becameInvalid)
        port.invalidate()
    }

    @Test func `a late reply is read by the engine, and then nothing is left to read`() throws {
        let (release, handled) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let served = try ServedPort { _, id, _ in
            if id == 1 { release.wait() }
            if id == 2 { handled.open() }
            // More than the kernel's buffer holds: the port serves this client again only when the reply has been read.
            return [UInt8](repeating: 1, count: id == 1 ? 4 << 20 : 0)
        }
        let connection = try RemoteConnection(
            PortRegistration.find(try PortName(served.name), timeout: patience), engine: try PortEngine.shared(), maximumLength: 16 << 20)
        let late = ReplyWaiter(.thread)
        try connection.sendRequest(late, id: 1, data: [], descriptors: [], deadline: .distantFuture)
        #expect(throws: RunLoop.PortError.replyTimedOut) { try connection.awaitReply(late, .distantPast) }
        #expect(connection.state.withLock { $0.abandonedReplies } == 1)
        release.open()
        try connection.send(id: 2, data: [], descriptors: [], deadline: .distantFuture)
        handled.wait()
        let next = ReplyWaiter(.thread)
        try connection.sendRequest(next, id: 3, data: [], descriptors: [], deadline: .distantFuture)
        #expect(try connection.awaitReply(next, .now.advanced(by: patience)) == [])
        #expect(connection.state.withLock { $0.abandonedReplies == 0 && $0.waiters.isEmpty })
        connection.end(.becameInvalid)
        try served.end()
    }

    private static let infinite: [Duration] = [.seconds(Int64.max), .nanoseconds(Int64.max), .seconds(1 << 40)]

    @Test(arguments: infinite)
    func `an infinite timeout is valid`(limit: Duration) async throws {
        let served = try ServedPort { _, _, data in data }
        let remote = try RunLoop.RemoteMessagePort(name: served.name, timeout: limit)
        try await elsewhere {
            try remote.send(id: 1, timeout: limit)
            #expect(try remote.request(id: 1, data: [1], sendTimeout: limit, replyTimeout: limit) == [1])
            #expect(try remote.request(id: 1, data: [2], sendTimeout: limit, replyTimeout: limit, replyMode: "replies") == [2])
        }
        #expect(try await remote.request(id: 1, data: [3], timeout: limit) == [3])
        try served.end()
    }

    @Test(arguments: [Duration.zero, .seconds(-1), .seconds(Int64.min)])
    func `a timeout of zero or less tries to send once and checks for a reply once`(limit: Duration) async throws {
        let name = freshName()
        let handled = Box(0)
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
            handled.increment()
            return nil
        }
        let remote = try RunLoop.RemoteMessagePort(name: name, timeout: limit)
        try await elsewhere {
            try remote.send(id: 1, timeout: limit)
            for mode in [nil, "replies"] as [RunLoop.Mode?] {
                #expect(throws: RunLoop.PortError.replyTimedOut) {
                    try remote.request(id: 1, sendTimeout: limit, replyTimeout: limit, replyMode: mode)
                }
            }
        }
        await #expect(throws: RunLoop.PortError.replyTimedOut) { try await remote.request(id: 1, timeout: limit) }
        // All of them arrive, and their replies are late.
        let running = RunningLoop { $0.add(port) }
        let last = try await elsewhere { try remote.ask() }
        #expect(last == nil)
        #expect(handled.value == 5)
        port.invalidate()
        try running.end()
    }

    /// A large request waits for room, so its run waits for the last byte too.
    @Test(arguments: [1, 4 << 20])
    func `a request returns although a nested run in its mode has taken its wake-up`(size: Int) throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in [UInt8(truncatingIfNeeded: data.count)] }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let server = Box<RunningLoop?>(nil)
        let isLate = Box(false)
        try onFreshThread { loop in
            loop.addTimer(forMode: "replies", at: .now) { _ in
                // Nobody has served the port before this. The reply arrives while this run is in progress.
                server.value = RunningLoop { $0.add(port) }
                _ = loop.run(mode: "replies", for: .milliseconds(300))
            }
            // Ends the wait late instead of never, if the wake-up is lost.
            loop.addTimer(forMode: "replies", at: .now.advanced(by: .seconds(600))) { _ in
                isLate.value = true
                loop.stop()
            }
            let reply = try remote.request(
                id: 1, data: [UInt8](repeating: 1, count: size), sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
            #expect(reply == [UInt8(truncatingIfNeeded: size)])
        }
        #expect(!isLate.value)
        port.invalidate()
        try server.value?.end()
    }

    @Test func `a request whose loop is told to end still gets its reply`() throws {
        let (begun, release, ended) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let served = try ServedPort { _, _, data in
            begun.open()
            release.wait()
            return data
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let reply = Box<[UInt8]?>(nil)
        let thread = try RunLoopThread(name: "requester")
        thread.runLoop.perform {
            defer { ended.open() }
            reply.value = try? remote.request(id: 1, data: [7], sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
        }
        begun.wait()
        thread.stop()
        release.open()
        ended.wait()
        #expect(reply.value == [7])
        #expect(thread.join(timeout: patience))
        try served.end()
    }

    @Test func `a request whose loop was told to end waits in real time, even if the loop's manual time does not advance`() throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let failure = Box<RunLoop.PortError?>(nil)
        let waited = Box(Duration.zero)
        let ended = EventLoopTestSupport.Gate()
        let clock = RunLoop.ManualClock()
        let thread = try RunLoopThread(name: "requester", setup: { $0.use(clock) })
        thread.runLoop.perform {
            defer { ended.open() }
            thread.stop()
            let start = ContinuousClock.now
            do throws(RunLoop.PortError) {
                _ = try remote.request(id: 1, sendTimeout: patience, replyTimeout: .milliseconds(50), replyMode: "replies")
            } catch { failure.value = error }
            waited.value = ContinuousClock.now - start
        }
        ended.wait()
        #expect(failure.value == .replyTimedOut)
        #expect(waited.value >= .milliseconds(49))
        #expect(thread.join(timeout: patience))
        port.invalidate()
    }

    @Test func `a request whose loop is told to end fails when the server ends`() throws {
        let (begun, ended) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let failure = Box<RunLoop.PortError?>(nil)
        let thread = try RunLoopThread(name: "requester")
        thread.runLoop.perform {
            defer { ended.open() }
            RunLoop.current.addSource(forMode: "replies", signaled: true) { _ in begun.open() }
            do throws(RunLoop.PortError) {
                _ = try remote.request(id: 1, sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
            } catch { failure.value = error }
        }
        begun.wait()
        thread.stop()
        port.invalidate()
        ended.wait()
        #expect(failure.value == .becameInvalid)
        #expect(thread.join(timeout: patience))
    }

    @Test func `a task that was cancelled before its request sends nothing, and the connection stays usable`() async throws {
        let handled = Box<[Int32]>([])
        let served = try ServedPort { _, id, data in
            handled.change { $0.append(id) }
            return data
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            await #expect(throws: RunLoop.PortError.sendTimedOut) { try await remote.request(id: 1, timeout: patience) }
        }
        await task.value
        #expect(try await remote.request(id: 2, data: [5], timeout: patience) == [5])
        #expect(handled.value == [2])
        try served.end()
    }

    @Test func `a port in two loops that a third thread invalidates ends each request once`() async throws {
        let (begun, release) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
            begun.open()
            release.wait()
            return [1]
        }
        let notifications = Box(0)
        let finished = EventLoopTestSupport.Gate()
        port.onInvalidation {
            notifications.increment()
            finished.open()
        }
        let loops = (0..<2).map { _ in RunningLoop { $0.add(port) } }
        let remotes = try (0..<3).map { _ in try RunLoop.RemoteMessagePort(name: name) }
        for remote in remotes { remote.onInvalidation { notifications.increment() } }
        let requesters = remotes.map { remote in
            plainThread {
                // Two requests wait until the handler of the first returns, or are not sent yet.
                do throws(RunLoop.PortError) {
                    _ = try remote.ask()
                    return false
                } catch { return error == .becameInvalid || error == .invalidPort }
            }
        }
        try await elsewhere {
            begun.wait()
            port.invalidate()
            for thread in requesters { #expect(try thread.join()) }
            let next = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
            next.invalidate()
            release.open()
            finished.wait()
            for loop in loops { try loop.end() }
        }
        for remote in remotes { remote.invalidate() }
        // The library's thread ends a request before it notifies anybody of the end.
        try await suspendUntil("everybody is notified") { notifications.value >= 4 }
        #expect(notifications.value == 4)
    }
}
