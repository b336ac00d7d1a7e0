// Rules proved here, of waiting for replies:
//  - Whoever reads a connection hands that over when it goes; whoever is to take it over takes it or passes it on, however late it is.
//  - Every limit is a legal one: none, one that has passed, one that never comes.
//  - A request whose loop is told to end, or whose task was cancelled before it began, ends.

import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct ReplyWaitTests {
    /// Another thread passes the reading on at every possible moment of a wait whose time is over.
    @Test func `a thread that gives up while it is made the next reader does not leave the connection without one`() throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let connection = try RemoteConnection(
            PortRegistration.find(try PortName(name), timeout: .zero), engine: try PortEngine.shared(), maximumLength: 100)
        let round = Atomic(0)
        let done = Atomic(0)
        let rounds = 5_000
        let leader = plainThread {
            for number in 1...rounds {
                while round.load(ordering: .acquiring) != number { sched_yield() }
                // Ends: the other one joins, or has gone.
                while connection.state.withLock({ $0.followers.isEmpty && $0.waiters[UInt64(number)] != nil }) { sched_yield() }
                connection.stopReading()
                done.store(number, ordering: .releasing)
            }
        }
        var unread = 0
        for number in 1...rounds {
            let waiter = ReplyWaiter(.thread)
            connection.state.withLock { state in
                (state.reader, state.unwantedReplies) = (.thread, 0)
                waiter.conversation = UInt64(number)
                state.waiters[UInt64(number)] = waiter
            }
            round.store(number, ordering: .releasing)
            #expect(throws: RunLoop.PortError.replyTimedOut) { try connection.awaitReply(waiter, .distantPast) }
            while done.load(ordering: .acquiring) != number { sched_yield() }
            if connection.state.withLock({ $0.reader == .thread }) { unread += 1 }
        }
        try leader.join()
        #expect(unread == 0)
        connection.end(.becameInvalid)
        port.invalidate()
    }

    private static let never: [Duration] = [.seconds(Int64.max), .nanoseconds(Int64.max), .seconds(1 << 40)]

    @Test(arguments: never)
    func `a limit that never comes is one`(limit: Duration) async throws {
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
    func `a limit that has passed sends once and looks once`(limit: Duration) async throws {
        let name = freshName()
        let heard = Box(0)
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
            heard.increment()
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
        // All of them arrive, and their replies come too late.
        let running = RunningLoop { $0.add(port) }
        let last = try await elsewhere { try remote.ask() }
        #expect(last == nil)
        #expect(heard.value == 5)
        port.invalidate()
        try running.end()
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
        let thread = try RunLoopThread(name: "asks")
        thread.runLoop.perform {
            defer { ended.open() }
            reply.value = try? remote.request(id: 1, data: [7], sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
        }
        begun.wait()
        thread.stop()
        release.open()
        ended.wait()
        #expect(reply.value == [7])
        thread.join()
        try served.end()
    }

    @Test func `a request whose loop is told to end hears of the server's end`() throws {
        let (begun, ended) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let outcome = Box<RunLoop.PortError?>(nil)
        let thread = try RunLoopThread(name: "asks")
        thread.runLoop.perform {
            defer { ended.open() }
            RunLoop.current.addSource(forMode: "replies", signaled: true) { _ in begun.open() }
            do throws(RunLoop.PortError) {
                _ = try remote.request(id: 1, sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
            } catch { outcome.value = error }
        }
        begun.wait()
        thread.stop()
        port.invalidate()
        ended.wait()
        #expect(outcome.value == .becameInvalid)
        thread.join()
    }

    @Test func `a task that was cancelled before it asks gives up at once, and the connection goes on`() async throws {
        let served = try ServedPort { _, _, data in data }
        let quiet = freshName()
        let port = try RunLoop.LocalMessagePort(name: quiet) { _, _, _ in nil }
        let remotes = [try RunLoop.RemoteMessagePort(name: quiet), try RunLoop.RemoteMessagePort(name: served.name)]
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            await #expect(throws: RunLoop.PortError.replyTimedOut) { try await remotes[0].request(id: 1, timeout: patience) }
            _ = try? await remotes[1].request(id: 1, timeout: patience)
        }
        await task.value
        #expect(try await remotes[1].request(id: 2, data: [5], timeout: patience) == [5])
        port.invalidate()
        try served.end()
    }

    @Test func `a port in two loops that a third thread invalidates ends all requests, once`() async throws {
        let (begun, release) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
            begun.open()
            release.wait()
            return [1]
        }
        let told = Box(0)
        let finished = EventLoopTestSupport.Gate()
        port.onInvalidation {
            told.increment()
            finished.open()
        }
        let loops = (0..<2).map { _ in RunningLoop { $0.add(port) } }
        let remotes = try (0..<3).map { _ in try RunLoop.RemoteMessagePort(name: name) }
        for remote in remotes { remote.onInvalidation { told.increment() } }
        let asking = remotes.map { remote in
            plainThread { #expect(throws: RunLoop.PortError.becameInvalid) { try remote.ask() } }
        }
        try await elsewhere {
            begun.wait()
            port.invalidate()
            for thread in asking { try thread.join() }
            let next = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
            next.invalidate()
            release.open()
            finished.wait()
            for loop in loops { try loop.end() }
        }
        for remote in remotes { remote.invalidate() }
        #expect(told.value == 4)
    }
}
