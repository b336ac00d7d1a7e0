// Rules proved here (semantics 17), within one process:
//  - Each message arrives once, in the order of sending, in a handler call of its own. A request gets the handler's value as its reply, and
//    nil and empty stay different.
//  - A port serves only in its modes; messages that arrive meanwhile wait. Each handler call counts as a handled source.
//  - A request to a port of the same thread gets its reply if the port is in the reply mode, and otherwise times out.
//  - A late reply is dropped. Requests of several threads on one connection get their own replies.
//  - When either end becomes invalid, both ends learn it at once.

import EventLoop
import EventLoopMessagePorts
import EventLoopTestSupport
import Testing

@Suite(.bounded, .tags(.threads)) struct MessagePortTests {
    @Test func `a request gets the handler's reply, by id and data`() throws {
        let served = try ServedPort { port, id, data in Array("\(port.name.prefix(4)) \(id) \(text(data))".utf8) }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try remote.ask(7, "hello") == "port 7 hello")
        #expect(try remote.ask(-3, "") == "port -3 ")
        #expect(remote.name == served.name && remote.isValid)
        try served.end()
    }

    @Test func `a reply of nil and an empty reply are different`() throws {
        let served = try ServedPort { _, id, _ in id == 0 ? nil : [] }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try remote.ask(0) == nil)
        #expect(try remote.ask(1) == "")
        try served.end()
    }

    @Test func `one-way messages arrive in order, one per handler call`() throws {
        let handled = Box<[Int32]>([])
        let served = try ServedPort { _, id, _ in
            handled.change { $0.append(id) }
            return [1, 2, 3]
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        for id in 0..<1_000 { try remote.send(id: Int32(id), timeout: patience) }
        #expect(try remote.ask(1_000) != nil)
        #expect(handled.value == Array(0...1_000))
        try served.end()
    }

    @Test(arguments: [0, 1, 100, 65_514, 65_515, 65_516, 300_000, 16 << 20])
    func `messages and replies of any size arrive complete`(size: Int) throws {
        let served = try ServedPort { _, _, data in data.reversed() }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let data = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
        let reply = try remote.request(id: 1, data: data, sendTimeout: patience, replyTimeout: patience)
        #expect(reply == data.reversed())
        try served.end()
    }

    @Test func `a port serves only in its modes, and messages that arrive meanwhile wait`() throws {
        let trace = Trace()
        let name = freshName()
        try onFreshThread { loop in
            let port = try RunLoop.LocalMessagePort(name: name) { _, id, _ in
                trace.add("\(id)")
                return nil
            }
            loop.add(port, forMode: "ports")
            loop.addIdleSource()
            let remote = try RunLoop.RemoteMessagePort(name: name)
            for id in 1...3 { try remote.send(id: Int32(id), timeout: .zero) }
            #expect(loop.run(for: .zero) == .timedOut)
            trace.add("|")
            // Each message ends one of these runs, because its handler call counts as a handled source.
            while loop.run(mode: "ports", for: .zero, returnAfterSourceHandled: true) == .handledSource { trace.add(";") }
            port.invalidate()
            #expect(loop.run(mode: "ports", for: .zero) == .finished)
        }
        #expect(trace.description == "| 1 ; 2 ; 3 ;")
    }

    @Test func `a port in several modes handles each message once`() throws {
        let handled = Counter()
        let name = freshName()
        try onFreshThread { loop in
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in
                handled.increment()
                return nil
            }
            loop.add(port)
            loop.add(port, forMode: "second")
            let remote = try RunLoop.RemoteMessagePort(name: name)
            for mode in ["default", "second", "default"] as [RunLoop.Mode] {
                try remote.send(id: 1, timeout: .zero)
                while loop.run(mode: mode, for: .zero, returnAfterSourceHandled: true) == .handledSource {}
            }
            port.invalidate()
        }
        #expect(handled.value == 3)
    }

    @Test func `a port of the same thread replies if it is in the reply mode`() throws {
        let name = freshName()
        try onFreshThread { loop in
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in data }
            loop.add(port, forMode: "replies")
            let remote = try RunLoop.RemoteMessagePort(name: name)
            #expect(
                try remote.request(id: 1, data: [5], sendTimeout: .zero, replyTimeout: patience, replyMode: "replies") == [5])
            // The source that waited for the reply has been removed, so the mode is empty without the port.
            loop.remove(port, forMode: "replies")
            #expect(loop.run(mode: "replies", for: .zero) == .finished)
            port.invalidate()
        }
    }

    @Test func `a port of the same thread replies to a message that is too large for the kernel's buffer`() throws {
        let name = freshName()
        try onFreshThread { loop in
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in data }
            loop.add(port, forMode: "replies")
            let remote = try RunLoop.RemoteMessagePort(name: name)
            let data = [UInt8](repeating: 5, count: 4 << 20)
            #expect(
                try remote.request(id: 1, data: data, sendTimeout: patience, replyTimeout: patience, replyMode: "replies") == data)
            port.invalidate()
        }
    }

    @Test func `two loops that send each other large requests at the same time both get their replies`() throws {
        let names = [freshName(), freshName()]
        let data = [UInt8](repeating: 5, count: 4 << 20)
        let ready = [Gate(), Gate()]
        let replies = [Box<[UInt8]?>(nil), Box<[UInt8]?>(nil)]
        let ports = try names.map { try RunLoop.LocalMessagePort(name: $0) { _, _, data in data } }
        let threads = try (0..<2).map { index in
            try RunLoopThread(
                name: "requester",
                setup: { loop in
                    loop.add(ports[index])
                    loop.add(ports[index], forMode: "replies")
                    loop.perform {
                        let remote = try? RunLoop.RemoteMessagePort(name: names[1 - index])
                        ready[index].open()
                        ready[1 - index].wait()
                        replies[index].value = try? remote?.request(
                            id: 1, data: data, sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
                    }
                })
        }
        for thread in threads { try thread.runLoop.performAndWait {} }
        for index in 0..<2 { #expect(replies[index].value == data) }
        for port in ports { port.invalidate() }
        for thread in threads {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
    }

    @Test func `a request that runs its loop is not sent if there is no room before its timeout`() throws {
        let name = freshName()
        let handled = Box<[Int32]>([])
        try onFreshThread { loop in
            let port = try RunLoop.LocalMessagePort(name: name) { _, id, _ in
                handled.change { $0.append(id) }
                return nil
            }
            let remote = try RunLoop.RemoteMessagePort(name: name)
            let data = [UInt8](repeating: 5, count: 4 << 20)
            for limit in [Duration.zero, .milliseconds(5)] {
                #expect(throws: RunLoop.PortError.sendTimedOut) {
                    try remote.request(id: 1, data: data, sendTimeout: limit, replyTimeout: patience, replyMode: "replies")
                }
            }
            loop.add(port, forMode: "replies")
            #expect(try remote.request(id: 2, sendTimeout: patience, replyTimeout: patience, replyMode: "replies") == nil)
            port.invalidate()
        }
        #expect(handled.value == [2])
    }

    @Test func `a port of the same thread in another mode does not reply in time, and its late reply is dropped`() throws {
        let name = freshName()
        try onFreshThread { loop in
            let port = try RunLoop.LocalMessagePort(name: name) { _, id, data in id == 1 ? [9] : data }
            loop.add(port)
            let remote = try RunLoop.RemoteMessagePort(name: name)
            for mode in [nil, "private"] as [RunLoop.Mode?] {
                #expect(throws: RunLoop.PortError.replyTimedOut) {
                    try remote.request(id: 1, sendTimeout: .zero, replyTimeout: .milliseconds(1), replyMode: mode)
                }
            }
            #expect(
                try remote.request(id: 2, data: [5], sendTimeout: .zero, replyTimeout: patience, replyMode: .default) == [5])
            port.invalidate()
        }
    }

    @Test func `a stop in the reply mode ends an inner run, but not the wait`() throws {
        let stopped = Gate()
        let served = try ServedPort { _, _, data in
            stopped.wait()
            return data
        }
        let trace = Trace()
        try onFreshThread { loop in
            let remote = try RunLoop.RemoteMessagePort(name: served.name)
            loop.addSource(forMode: "replies", signaled: true) { _ in
                trace.add("served")
                stopped.open()
                loop.stop()
            }
            #expect(
                try remote.request(id: 1, data: [5], sendTimeout: patience, replyTimeout: patience, replyMode: "replies") == [5])
        }
        #expect(trace.description == "served")
        try served.end()
    }

    @Test func `requests of several threads on one connection get their own replies`() throws {
        let served = try ServedPort { _, id, data in Array("\(id):\(text(data))".utf8) }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let threads = (0..<8).map { number in
            plainThread {
                for round in 0..<200 {
                    let reply = try remote.ask(Int32(number), "\(round)")
                    #expect(reply == "\(number):\(round)")
                }
            }
        }
        for thread in threads { try thread.join() }
        try served.end()
    }

    @Test func `tasks, threads and loops share one connection`() async throws {
        let served = try ServedPort { _, id, data in Array("\(id):\(text(data))".utf8) }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let blocking = plainThread {
            for round in 0..<200 {
                let reply = try remote.ask(1, "\(round)")
                #expect(reply == "1:\(round)")
            }
        }
        let running = joinableThread { _ in
            for round in 0..<200 {
                let data = Array("\(round)".utf8)
                let reply = try remote.request(id: 2, data: data, sendTimeout: patience, replyTimeout: patience, replyMode: "mine")
                #expect(reply.map(text) == "2:\(round)")
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 3..<7 {
                group.addTask {
                    for round in 0..<50 {
                        let reply = try await remote.request(id: Int32(number), data: Array("\(round)".utf8), timeout: patience)
                        #expect(reply.map(text) == "\(number):\(round)")
                    }
                }
            }
            try await group.waitForAll()
        }
        try await elsewhere {
            try blocking.join()
            try running.join()
            try served.end()
        }
    }

    @Test func `a name belongs to one valid port, and is free when that port is invalid`() throws {
        let name = freshName()
        let first = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        #expect(throws: RunLoop.PortError.nameInUse) { try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil } }
        first.invalidate()
        #expect(throws: RunLoop.PortError.notFound) { try RunLoop.RemoteMessagePort(name: name) }
        let second = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        second.invalidate()
    }

    @Test func `a port that is released gives its name back`() throws {
        let name = freshName()
        do { _ = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil } }
        #expect(throws: RunLoop.PortError.notFound) { try RunLoop.RemoteMessagePort(name: name) }
    }

    @Test func `a port that its own handler invalidates ends the request and frees its name`() throws {
        let name = freshName()
        let ended = Gate()
        let served = try ServedPort(name) { port, _, _ in
            port.invalidate()
            #expect(!port.isValid)
            let next = try? RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
            #expect(next != nil)
            next?.invalidate()
            return [1]
        }
        served.port.onInvalidation { ended.open() }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        #expect(throws: RunLoop.PortError.becameInvalid) { try remote.ask() }
        ended.wait()
        #expect(!remote.isValid)
        try served.end()
    }

    @Test func `a client is notified of the port's end at once, without running a loop`() throws {
        let served = try ServedPort { _, _, _ in nil }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let (notifications, ended) = (Counter(), Gate())
        remote.onInvalidation {
            notifications.increment()
            ended.open()
        }
        served.port.invalidate()
        #expect(!remote.isValid)
        ended.wait()
        remote.onInvalidation { notifications.increment() }
        #expect(notifications.value == 2)
        #expect(throws: RunLoop.PortError.invalidPort) { try remote.ask() }
        #expect(throws: RunLoop.PortError.invalidPort) { try remote.send(id: 1, timeout: .zero) }
        try served.end()
    }

    @Test func `invalidating a client ends its requests`() throws {
        let (begun, release) = (Gate(), Gate())
        let served = try ServedPort { _, _, _ in
            begun.open()
            release.wait()
            return nil
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let requester = plainThread {
            #expect(throws: RunLoop.PortError.becameInvalid) { try remote.ask() }
        }
        begun.wait()
        remote.invalidate()
        try requester.join()
        release.open()
        #expect(!remote.isValid)
        try served.end()
    }

    @Test func `a cancelled task abandons its request, and the late reply is dropped`() async throws {
        let (begun, release) = (Gate(), Gate())
        let served = try ServedPort { _, id, _ in
            if id == 1 {
                begun.open()
                release.wait()
            }
            return [UInt8(id)]
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let task = Task { try await remote.request(id: 1, timeout: patience) }
        try await elsewhere { begun.wait() }
        task.cancel()
        let end = await task.result
        #expect(throws: RunLoop.PortError.replyTimedOut) { try end.get() }
        release.open()
        #expect(try await remote.request(id: 2, timeout: patience) == [2])
        try served.end()
    }

    @Test func `a task's request has a time limit`() async throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        await #expect(throws: RunLoop.PortError.replyTimedOut) { try await remote.request(id: 1, timeout: .milliseconds(1)) }
        port.invalidate()
    }

    @Test func `a message without room is cancelled, and later messages arrive`() throws {
        let name = freshName()
        let handled = Box<[Int]>([])
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in
            handled.change { $0.append(data.count) }
            return nil
        }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        // A part of the first message fills the kernel's buffer, so there is no room for the second.
        for size in [4 << 20, 1] {
            #expect(throws: RunLoop.PortError.sendTimedOut) {
                try remote.send(id: 1, data: [UInt8](repeating: 1, count: size), timeout: .milliseconds(1))
            }
        }
        let running = RunningLoop { $0.add(port) }
        #expect(try remote.ask(2, "abc") == nil)
        #expect(handled.value == [3])
        port.invalidate()
        try running.end()
    }

    @Test func `a task's message that is not sent in time, or cancelled, does not arrive, even if a part of it was sent`() async throws {
        let handled = Box<[Int32]>([])
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, id, _ in
            handled.change { $0.append(id) }
            return nil
        }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let large = [UInt8](repeating: 1, count: 4 << 20)
        await #expect(throws: RunLoop.PortError.sendTimedOut) { try await remote.send(id: 1, data: large, timeout: .milliseconds(1)) }
        let cancelled = Task { try await remote.send(id: 2, timeout: .seconds(3600)) }
        cancelled.cancel()
        await #expect(throws: RunLoop.PortError.sendTimedOut) { try await cancelled.value }
        let waiting = (0..<20).map { _ in Task { try await remote.send(id: 3, timeout: patience) } }
        let running = RunningLoop { $0.add(port) }
        for sender in waiting { try await sender.value }
        try await remote.send(id: 4, data: large, timeout: patience)
        try await suspendUntil("the last message") { handled.value.last == 4 }
        #expect(handled.value == Array(repeating: 3, count: 20) + [4])
        port.invalidate()
        await #expect(throws: RunLoop.PortError.self) {
            while true { try await remote.send(id: 5, timeout: .zero) }  // ends: when the client has noticed the end
        }
        try running.end()
    }

    @Test func `a message that is too large is refused by either end, with its size`() throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name, maximumMessageSize: 100) { _, id, _ in
            [UInt8](repeating: 0, count: Int(id))
        }
        let running = RunningLoop { $0.add(port) }
        let remote = try RunLoop.RemoteMessagePort(name: name, maximumMessageSize: 100)
        #expect(throws: RunLoop.PortError.messageTooLarge(101)) {
            try remote.send(id: 1, data: [UInt8](repeating: 0, count: 101), timeout: .zero)
        }
        #expect(throws: RunLoop.PortError.messageTooLarge(101)) { try remote.ask(101) }
        #expect(try remote.ask(100)?.count == 100)
        // A client with a higher limit loses its connection. Others keep theirs.
        let other = try RunLoop.RemoteMessagePort(name: name)
        #expect(throws: RunLoop.PortError.becameInvalid) {
            try other.request(
                id: 1, data: [UInt8](repeating: 0, count: 101), sendTimeout: patience, replyTimeout: patience)
        }
        #expect(try remote.ask(1)?.count == 1)
        port.invalidate()
        try running.end()
    }

    @Test(arguments: ["", "a\0b", String(repeating: "x", count: 129), String(repeating: "ä", count: 65)])
    func `an invalid name is refused`(name: String) {
        #expect(throws: RunLoop.PortError.badName(name)) { try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil } }
        #expect(throws: RunLoop.PortError.badName(name)) { try RunLoop.RemoteMessagePort(name: name) }
    }

    @Test func `different names lead to different ports`() throws {
        let base = freshName()
        let long = String(repeating: "long", count: 31)
        let names = [
            ".", "..", "/", "../x", ".lock", "a b", "ä", "%2f", "%252f", base, base + " ", base.uppercased(), long, long + "1", long + "2",
            "\u{1}",
        ]
        let ports = try names.map { name in try RunLoop.LocalMessagePort(name: name) { port, _, _ in Array(port.name.utf8) } }
        let running = RunningLoop { loop in for port in ports { loop.add(port) } }
        for name in names { #expect(try RunLoop.RemoteMessagePort(name: name).ask() == name) }
        for port in ports { port.invalidate() }
        try running.end()
    }

    @Test func `every remote port has its own connection`() throws {
        let served = try ServedPort { _, id, _ in [UInt8(id)] }
        let first = try RunLoop.RemoteMessagePort(name: served.name)
        let second = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(first !== second)
        first.invalidate()
        #expect(!first.isValid && second.isValid)
        #expect(try second.ask(65) == "A")
        try served.end()
    }

    @Test func `the common modes as a reply mode trap with a message`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { _ in
                let local = try RunLoop.LocalMessagePort(name: freshName()) { _, _, _ in nil }
                let remote = try RunLoop.RemoteMessagePort(name: local.name)
                _ = try remote.request(id: 1, sendTimeout: .zero, replyTimeout: .zero, replyMode: .common)
            }
        }
        #expect(String(decoding: try #require(result).standardErrorContent, as: UTF8.self).contains("a loop runs in a single mode"))
    }

    @Test func `a handler that runs its loop is called again for the next request`() throws {
        let begun = Gate()
        let served = try ServedPort { _, id, _ in
            if id == 0 { return [0] }
            begun.open()
            _ = RunLoop.current.run(for: patience, returnAfterSourceHandled: true)
            return [1]
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        let outer = plainThread { try remote.ask(1) }
        begun.wait()
        #expect(try remote.ask(0) == "\u{0}")
        #expect(try outer.join() == "\u{1}")
        try served.end()
    }

    @Test func `a request that the handler was not called for is not answered, whenever another thread invalidates the port`() throws {
        for round in 0..<20 {
            let served = try ServedPort { _, _, data in data }
            let remote = try RunLoop.RemoteMessagePort(name: served.name)
            let answers = Counter()
            let client = plainThread {
                // Ends: with the connection.
                while true {
                    let reply: [UInt8]?
                    do { reply = try remote.request(id: 1, data: [3], sendTimeout: patience, replyTimeout: patience) } catch { return }
                    #expect(reply == [3])
                    answers.increment()
                }
            }
            try waitUntil("an answer") { answers.value > 0 }
            for _ in 0..<round { breathe() }
            served.port.invalidate()
            try client.join()
            try served.end()
        }
    }
}
