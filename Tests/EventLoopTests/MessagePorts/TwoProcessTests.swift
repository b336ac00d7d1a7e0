// Rules proved here, between two real processes (Tests/PortPeer):
//  - Requests, one-way messages, empty and large replies; many threads on one connection.
//  - If a server is killed during a request, exits, or ends its port, the request fails at once and `onInvalidation` is called.
//  - If a client is killed during a request, the port loses that connection and nothing else.
//  - A name belongs to one process. Of several processes that take over the name of a killed one, exactly one succeeds.
//  - Descriptors arrive with their message, close-on-exec. Those that the receiver ignores or refuses are closed.

#if os(Linux)

import EventLoop
import EventLoopMessagePorts
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded, .tags(.threads)) struct TwoProcessTests {
    @Test func `another process replies to a request`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        #expect(try remote.ask(0, "there and back") == "there and back")
        #expect(try remote.ask(1) == nil)
        #expect(try remote.ask(0) == "")
        #expect(try remote.ask(4) != "\(getpid())")
        #expect(peer.ended() == 0)
        #expect(!remote.isValid)
    }

    @Test func `another process sends a request to a port of this one`() throws {
        let served = try ServedPort { _, id, data in Array("\(id) \(text(data))".utf8) }
        let peer = try PeerProcess("ask", served.name, "5", "hello")
        #expect(peer.line() == "5 hello")
        #expect(peer.ended() == 0)
        try served.end()
    }

    @Test func `a large message and a large reply arrive in the other process`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let data = [UInt8](repeating: 3, count: 16 << 20)
        #expect(try remote.request(id: 0, data: data, sendTimeout: patience, replyTimeout: patience) == data)
        #expect(try remote.ask(7, "xxx")?.utf8.count == 3 << 20)
        #expect(throws: RunLoop.PortError.messageTooLarge(17 << 20)) { try remote.ask(7, String(repeating: "x", count: 17)) }
        #expect(peer.ended() == 0)
    }

    @Test func `many large requests at the same time all get replies`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let data = [UInt8](repeating: 3, count: 16 << 20)
        let threads = (0..<8).map { _ in
            plainThread {
                let remote = try RunLoop.RemoteMessagePort(name: name)
                for _ in 0..<2 {
                    #expect(try remote.request(id: 0, data: data, sendTimeout: patience, replyTimeout: patience)?.count == data.count)
                }
            }
        }
        for thread in threads { try thread.join() }
        #expect(peer.ended() == 0)
    }

    @Test func `several threads send requests to one process on one connection`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let threads = (0..<6).map { number in
            plainThread {
                for round in 0..<200 {
                    let reply = try remote.ask(0, "\(number):\(round)")
                    #expect(reply == "\(number):\(round)")
                }
            }
        }
        for thread in threads { try thread.join() }
        #expect(peer.ended() == 0)
    }

    // MARK: The end of a process

    /// How a request waits for its reply.
    enum Way: String, CaseIterable, Sendable { case thread, loop, task }

    @Test(arguments: Way.allCases)
    func `a server that is killed during a request ends the request at once`(way: Way) async throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let notified = Gate()
        remote.onInvalidation { notified.open() }
        let failure = Box<RunLoop.PortError?>(nil)
        let requester = plainThread { [way] in
            do throws(RunLoop.PortError) {
                switch way {
                case .thread: _ = try remote.request(id: 2, sendTimeout: patience, replyTimeout: patience)
                case .loop: _ = try remote.request(id: 2, sendTimeout: patience, replyTimeout: patience, replyMode: "replies")
                case .task: break
                }
            } catch { failure.value = error }
        }
        let task = Task { () -> RunLoop.PortError? in
            guard way == .task else { return nil }
            do throws(RunLoop.PortError) {
                _ = try await remote.request(id: 2, timeout: patience)
                return nil
            } catch { return error }
        }
        try await elsewhere {
            #expect(peer.line() == "hanging")
            #expect(peer.killed() == 128 + SIGKILL)
            #expect(!remote.isValid)
            try requester.join()
        }
        let ofTask = await task.value
        #expect((way == .task ? ofTask : failure.value) == .becameInvalid)
        notified.wait()
        #expect(throws: RunLoop.PortError.invalidPort) { try remote.ask(0) }
        #expect(throws: RunLoop.PortError.notFound) { try RunLoop.RemoteMessagePort(name: name) }
    }

    @Test(arguments: [Int32(3), 8])
    func `a server that exits or ends its port in the handler ends the request`(id: Int32) throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        #expect(throws: RunLoop.PortError.becameInvalid) { try remote.ask(id) }
        #expect(!remote.isValid)
        #expect(peer.ended() == (id == 3 ? 3 : 0))
    }

    @Test func `an idle client is notified when its server dies`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let notified = Gate()
        remote.onInvalidation { notified.open() }
        _ = peer.killed()
        notified.wait()
        #expect(!remote.isValid)
    }

    @Test func `a client that is killed during a request costs the port nothing`() throws {
        let (begun, release) = (Gate(), Gate())
        let served = try ServedPort { _, id, data in
            if id == 2 {
                begun.open()
                release.wait()
            }
            return data
        }
        let peer = try PeerProcess("hang", served.name)
        #expect(peer.line() == "asking")
        begun.wait()
        #expect(peer.killed() == 128 + SIGKILL)
        // Sending the reply fails without a SIGPIPE.
        release.open()
        #expect(try RunLoop.RemoteMessagePort(name: served.name).ask(0, "alive") == "alive")
        try served.end()
    }

    // MARK: Names

    @Test func `a name that another process has is in use, and free after that process is killed`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        #expect(throws: RunLoop.PortError.nameInUse) { try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil } }
        _ = peer.killed()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        let late = try PeerProcess("serve", name)
        #expect(late.line() == "\(RunLoop.PortError.nameInUse)")
        port.invalidate()
    }

    @Test func `if several processes take a stale name at the same time, exactly one gets it`() throws {
        let name = freshName()
        for _ in 0..<3 {
            let peer = try PeerProcess.serving(name)
            _ = peer.killed()
            let rivals = try (0..<8).map { _ in try PeerProcess("take", name) }
            for rival in rivals { #expect(rival.line() == "here") }
            for rival in rivals { rival.tell() }
            let results = rivals.map { $0.line() ?? "nothing" }.sorted()
            #expect(results == [String](repeating: "\(RunLoop.PortError.nameInUse)", count: 7) + ["taken"])
            // The owner is killed with the others, which leaves the name stale again.
        }
    }

    @Test func `in a forked child a port of the parent is invalid, and the end of the child does not affect it`() async {
        await #expect(processExitsWith: .success) {
            let served = try ServedPort { _, _, data in data }
            let remote = try RunLoop.RemoteMessagePort(name: served.name)
            #expect(try remote.ask(0, "before") == "before")
            let end = inForkedChild {
                if remote.isValid { return 1 }
                let isNotified = Box(false)
                remote.onInvalidation { isNotified.value = true }
                if !isNotified.value { return 4 }
                do throws(RunLoop.PortError) {
                    try remote.send(id: 1, timeout: .zero)
                    return 2
                } catch { return error == .invalidPort ? 0 : 3 }
            }
            #expect(end.status == 0, "\(end)")
            #expect(try remote.ask(0, "after") == "after")
            try served.end()
        }
    }

    // MARK: Descriptors

    @Test func `descriptors arrive with a message, close-on-exec`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let pipes = (0..<3).map { _ in Pipe() }
        let reply = try remote.request(
            id: 5, data: Array("hello".utf8), descriptors: pipes.map(\.writeEnd), sendTimeout: patience, replyTimeout: patience)
        #expect(reply.map(text) == "ccc")
        for pipe in pipes { #expect(pipe.readAll() == "hello") }
        #expect(peer.ended() == 0)
    }

    @Test func `descriptors that the receiver ignores or refuses are closed`() throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let pipe = Pipe()
        let many = [Int32](repeating: pipe.writeEnd, count: 64)
        let before = try remote.ask(10)
        for _ in 0..<20 {
            #expect(
                try remote.request(id: 6, descriptors: many, sendTimeout: patience, replyTimeout: patience).map(text) == "64")
            try remote.send(id: 6, descriptors: many, timeout: patience)
        }
        // Threads of the port's process close them.
        try waitUntil("the port has closed the descriptors") { try remote.ask(10) == before }
        #expect(throws: RunLoop.PortError.messageTooLarge(65)) {
            try remote.send(id: 6, descriptors: many + [pipe.writeEnd], timeout: .zero)
        }
        #expect(throws: RunLoop.PortError.system(operation: "sendmsg to the message port \"\(name)\"", errno: EBADF)) {
            try remote.send(id: 6, descriptors: [-1], timeout: .zero)
        }
        #expect(try remote.ask(0, "alive") == "alive")
        #expect(peer.ended() == 0)
    }

    @Test func `descriptors also arrive with a task's request and with a large message`() async throws {
        let name = freshName()
        let peer = try PeerProcess.serving(name)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let pipe = Pipe()
        let data = [UInt8](repeating: 65, count: 1 << 20)
        let small = try await remote.request(id: 5, data: [66], descriptors: [pipe.writeEnd], timeout: patience)
        #expect(small.map(text) == "c" && pipe.readAll() == "B")
        let large = try await remote.request(id: 6, data: data, descriptors: [pipe.writeEnd, pipe.readEnd], timeout: patience)
        #expect(large.map(text) == "2")
        #expect(peer.ended() == 0)
    }

    // MARK: Without free descriptors

    @Test func `a port without free descriptors keeps serving, does not spin, and accepts clients when it has some again`() throws {
        let name = freshName()
        let peer = try PeerProcess("starve", name)
        #expect(peer.line() == "ready")
        let first = try RunLoop.RemoteMessagePort(name: name)
        #expect(try first.ask(0, "one") == "one")
        // They are in the kernel's queue, and the port cannot accept all of them.
        var crowd = try (0..<40).map { _ in try RunLoop.RemoteMessagePort(name: name) }
        let passes = try #require(try first.ask(9).flatMap { UInt64($0) })
        #expect(passes < 500, "\(passes) passes")
        #expect(try first.ask(0, "two") == "two")
        crowd = []
        #expect(try RunLoop.RemoteMessagePort(name: name).ask(0, "three") == "three")
        #expect(peer.ended() == 0)
        withExtendedLifetime(crowd) {}
    }

    @Test func `many silent connections do not keep others out of a port with few descriptors`() throws {
        let name = freshName()
        let peer = try PeerProcess("starve", name)
        #expect(peer.line() == "ready")
        let crowd = try PeerProcess("crowd", name, "100")
        #expect(crowd.line() == "half" && crowd.line() == "done")
        for number in 0..<3 {
            let remote = try RunLoop.RemoteMessagePort(name: name)
            let reply = try remote.request(id: 0, data: [UInt8(number)], sendTimeout: .seconds(60), replyTimeout: .seconds(60))
            #expect(reply == [UInt8(number)])
        }
        #expect(crowd.ended() == 0 && peer.ended() == 0)
    }

    @Test func `a port without free descriptors for a message closes its connection and serves the others`() throws {
        let name = freshName()
        let peer = try PeerProcess("starve", name)
        #expect(peer.line() == "ready")
        let honest = try RunLoop.RemoteMessagePort(name: name)
        let before = try honest.ask(10)
        let pipe = Pipe()
        for count in [64, 64] {
            let greedy = try RunLoop.RemoteMessagePort(name: name)
            #expect(throws: RunLoop.PortError.becameInvalid) {
                try greedy.request(
                    id: 6, descriptors: [Int32](repeating: pipe.writeEnd, count: count), sendTimeout: patience, replyTimeout: patience)
            }
            #expect(try honest.ask(0, "alive") == "alive")
        }
        // The descriptors that did arrive are closed, some on another thread, because a close may block.
        try waitUntil("the port has closed the descriptors that arrived") { try honest.ask(10) == before }
        #expect(
            try honest.request(id: 5, data: [65], descriptors: [pipe.writeEnd], sendTimeout: patience, replyTimeout: patience).map(text)
                == "c")
        #expect(pipe.readAll() == "A")
        #expect(peer.ended() == 0)
    }
}

#endif
