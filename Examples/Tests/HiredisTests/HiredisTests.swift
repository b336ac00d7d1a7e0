// hiredis's asynchronous interface on a loop, with a redis-server of the test's own:
//  - 100,000 pipelined commands are answered in order, also while handlers run other modes, or the same one.
//  - When the server is killed, the commands in progress end without a reply, and a new connection works after the restart.
//  - A reply's closure may run another mode with another connection.
//  - A thread ends while commands are in progress.

import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct HiredisTests {
    @Test(arguments: hostModes, [false, true])
    func `100,000 pipelined commands are answered in order`(mode: RunLoop.Mode, isInterrupted: Bool) throws {
        let server = try RedisServer()
        try onFreshThread { loop in
            let count = 100_000
            let connection = try RedisConnection(server.socketPath, on: loop, mode)
            defer { connection.free() }
            let timer = isInterrupted ? interrupt(loop, mode) { [calls = connection.calls] in calls.value } : nil
            let left = Countdown(count, on: loop)
            let wrong = Box<String?>(nil)
            for number in 1...count {
                connection.send("INCR", "key") { reply in
                    if reply != .integer(number), wrong.value == nil { wrong.value = "\(reply) instead of \(number)" }
                    left.done()
                    // Inside hiredis, inside libevent.
                    if isInterrupted && number % 10_000 == 0 { runSilently(loop) { left.count } }
                }
            }
            try left.wait(in: mode, "the replies of redis-server")
            timer?.invalidate()
            #expect(wrong.value == nil)
            #expect(left.count == count)
        }
    }

    @Test(arguments: hostModes)
    func `after the server was killed and restarted, a new connection works`(mode: RunLoop.Mode) throws {
        let server = try RedisServer()
        let isGone = Gate()
        let restart = plainThread {
            isGone.wait()
            try server.start()
        }
        try onFreshThread { loop in
            let count = 10_000
            let before = Countdown(count + 1, on: loop)
            let (answered, unanswered) = (Box(0), Box(0))
            let first = try RedisConnection(server.socketPath, on: loop, mode)
            first.onDisconnect = { isClean in
                #expect(!isClean)
                isGone.open()
                before.done()
            }
            for number in 1...count {
                first.send("INCR", "key") { reply in
                    if reply == .integer(number) { answered.increment() } else if reply == .none { unanswered.increment() }
                    if number == 1000 { server.kill() }
                    before.done()
                }
            }
            try before.wait(in: mode, "every command ends, and so does the connection")
            #expect(answered.value + unanswered.value == count)
            #expect(answered.value >= 1000)

            // A timer of the loop connects again, until that works.
            let after = Countdown(1000, on: loop)
            let second = Box<LoopBound<RedisConnection>?>(nil)
            let retry = RunLoop.Timer(every: .milliseconds(5)) { timer in
                guard let connection = try? RedisConnection(server.socketPath, on: loop, mode) else { return }
                timer.invalidate()
                second.value = LoopBound(connection)
                for number in 1...1000 {
                    connection.send("INCR", "key") { reply in
                        #expect(reply == .integer(number), "a restarted server counts from one")
                        after.done()
                    }
                }
            }
            loop.add(retry, forMode: mode)
            try after.wait(in: mode, "the restarted server answers")
            second.value?.value.free()
        }
        try restart.join()
    }

    @Test(arguments: hostModes)
    func `a reply's closure may wait for another connection, in a nested run of another mode`(mode: RunLoop.Mode) throws {
        let server = try RedisServer()
        try onFreshThread { loop in
            let outer = try RedisConnection(server.socketPath, on: loop, mode)
            let inner = try RedisConnection(server.socketPath, on: loop, "inner")
            defer {
                outer.free()
                inner.free()
            }
            let count = 200
            let left = Countdown(count, on: loop)
            for number in 1...count {
                outer.send("INCR", "outer") { reply in
                    #expect(reply == .integer(number))
                    let asked = outer.calls.value
                    let answer = Countdown(1, on: loop)
                    inner.send("INCRBY", "inner", "\(number)") { reply in
                        #expect(reply == .integer(number * (number + 1) / 2))
                        answer.done()
                    }
                    do { try answer.wait(in: "inner", "the inner reply") } catch { Issue.record(error) }
                    #expect(outer.calls.value == asked, "the outer connection was called in the inner mode")
                    left.done()
                }
            }
            try left.wait(in: mode, "the outer replies")
        }
    }

    @Test(arguments: hostModes)
    func `a connection that disconnects delivers the replies to all commands`(mode: RunLoop.Mode) throws {
        let server = try RedisServer()
        try onFreshThread { loop in
            let left = Countdown(1001, on: loop)
            let connection = try RedisConnection(server.socketPath, on: loop, mode)
            connection.onDisconnect = { isClean in
                #expect(isClean)
                #expect(left.count == 1000)
                left.done()
            }
            for number in 1...1000 {
                connection.send("ECHO", "\(number)") { reply in
                    #expect(reply == .text("\(number)"))
                    left.done()
                }
            }
            connection.disconnect()
            try left.wait(in: mode, "the replies and the end of the connection")
            // Nothing keeps the mode any more.
            #expect(loop.run(mode: mode, for: libraryPatience) == .finished)
        }
    }

    @Test(arguments: hostModes)
    func `a thread ends while commands are in progress, and each command ends once`(mode: RunLoop.Mode) throws {
        let server = try RedisServer()
        let calls = Box(0)
        let host = try LibraryHost(
            mode,
            make: { try RedisConnection(server.socketPath, on: $0, mode) }, free: { $0.free() })
        let count = 20_000
        try host.use { connection in
            for _ in 1...count { connection.send("INCR", "key") { _ in calls.increment() } }
        }
        try host.end()
        #expect(calls.value == count)
    }
}
