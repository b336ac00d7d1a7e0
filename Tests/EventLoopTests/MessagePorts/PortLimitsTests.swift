// Rules proved here (semantics 17.20, 17.21, 17.27), of memory for incomplete messages and unread replies:
//  - The memory of a port, counted in capacities, is bounded by its grants, and is freed when a message has been handled.
//  - A message without memory waits. However many there are, all arrive, and no connection is closed.
//  - A connection that keeps others waiting and makes no progress in the port's own time is closed. One that makes progress, or waits for
//    the port, is not.
//  - The process with the least memory is next, and of its connections the one that has waited longest. No request overtakes another.

#if os(Linux)

import CLibevent
import CPlatform
import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

/// Sends bytes in pieces.
private final class Sender {
    let client: RawClient
    private var unsent: ArraySlice<UInt8>

    init(_ name: String, _ bytes: [UInt8]) throws {
        client = try RawClient(name)
        unsent = bytes[...]
    }

    /// Sends as much as there is room for. Returns false if everything is sent.
    func send(atMost limit: Int = .max) -> Bool {
        var left = limit
        while !unsent.isEmpty && left > 0 {  // ends: everything is sent, or there is no room
            let part = unsent.prefix(left)
            let count = part.withUnsafeBytes {
                Glibc.send(client.descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            }
            if count <= 0 { return true }
            unsent = unsent.dropFirst(count)
            left -= count
        }
        return !unsent.isEmpty
    }
}

@Suite(.tags(.threads)) struct PortLimitsTests {
    private static let size = 1 << 20
    private static let memory = 4 << 20

    private func message(_ body: Int = size, _ kind: UInt8 = 1) -> [UInt8] {
        rawFrame(kind, length: UInt32(body), body: [UInt8](repeating: 7, count: body) + [1])
    }

    /// A port with memory for three frames of one mebibyte, a reserve for another, and manual time.
    private func withServer(_ body: (PortServer, String, RunLoop.ManualClock) throws -> Void) throws {
        let name = freshName("limits")
        let clock = RunLoop.ManualClock()
        let server = try PortServer(try PortName(name), maximumLength: Self.size, leastMemory: Self.memory, clock: { clock.now })
        defer {
            server.withdraw()
            server.end()
        }
        try body(server, name, clock)
    }

    @Test func `however many messages arrive at once, their memory is bounded and all are handled`() throws {
        try withServer { server, name, _ in
            let count = 40
            let senders = try (0..<count).map { _ in try Sender(name, message()) }
            let handled = Box(0)
            let bound = Self.memory + 100 + count * 3 * MemoryPool.allowance
            var highest = 0
            for _ in 0..<100_000 where handled.value < count {
                for sender in senders { _ = sender.send() }
                _ = server.serve { frame, _ in
                    #expect(frame.body.count == Self.size)
                    handled.increment()
                    return nil
                }
                highest = max(highest, server.testsOnlyCapacity)
            }
            #expect(handled.value == count)
            #expect(highest <= bound && highest >= Self.size, "\(highest) bytes")
            #expect(server.testsOnlyCapacity <= count * MemoryPool.allowance)
            #expect(server.limits.memory.testsOnlyGranted == 0 && !server.hasWaiters)
            for sender in senders { #expect(!sender.client.isClosedNow) }
        }
    }

    @Test func `small messages and those of a usual size do not wait for long ones`() throws {
        try withServer { server, name, _ in
            let hogs = try (0..<6).map { _ in try Sender(name, message().dropLast()) }
            for _ in 0..<200 {
                for hog in hogs { _ = hog.send() }
                let served = server.serve { _, _ in nil }
                #expect(!served)
            }
            #expect(server.limits.memory.hasWaiters)
            // Messages of up to 128 KiB use another pool.
            for size in [8, 100_000] {
                let honest = try Sender(name, message(size, 2))
                let handled = Box(0)
                for _ in 0..<100 where handled.value == 0 {
                    _ = honest.send()
                    _ = server.serve { frame, _ in
                        handled.value = frame.body.count
                        return nil
                    }
                }
                #expect(handled.value == size)
            }
            for hog in hogs { #expect(!hog.client.isClosedNow) }
        }
    }

    @Test func `stalled connections that keep others waiting are closed, and those that make progress are not`() throws {
        try withServer { server, name, clock in
            let stalled = try (0..<2).map { _ in try Sender(name, message().dropLast(2)) }
            let slow = try Sender(name, message())
            for _ in 0..<50 {
                for sender in stalled { _ = sender.send() }
                _ = slow.send(atMost: 1_000)
                _ = server.serve { _, _ in nil }
            }
            // All three have memory, and nobody waits, so none is ever closed.
            clock.advance(by: .seconds(10_000))
            _ = server.serve { _, _ in nil }
            let next = try Sender(name, message())
            for _ in 0..<50 {
                _ = next.send()
                _ = server.serve { _, _ in nil }
            }
            #expect(server.limits.memory.hasWaiters)
            // A long time in which the port is not served does not count as a stall.
            clock.advance(by: .seconds(10_000))
            let servedAfterPause = server.serve { _, _ in nil }
            #expect(!servedAfterPause && stalled.allSatisfy { !$0.client.isClosedNow })
            let handled = Box(0)
            for round in 0..<30 {
                clock.advance(by: StallDetector.interval)
                _ = slow.send(atMost: 90_000)
                _ = next.send()
                while server.serve({ _, _ in
                    handled.increment(); return nil
                }) {}  // ends: all messages that have arrived are served
                if round < 8 { #expect(stalled.allSatisfy { !$0.client.isClosedNow }) }
            }
            #expect(stalled.allSatisfy { $0.client.isClosedNow } && !slow.client.isClosedNow && !next.client.isClosedNow)
            #expect(handled.value == 2 && server.limits.memory.testsOnlyGranted == 0)
        }
    }

    @Test func `unread replies make other requests wait until the clients that read nothing are closed`() throws {
        try withServer { server, name, clock in
            let silent = try (0..<5).map { _ in try RawClient(name) }
            for client in silent { client.send(rawFrame(length: 0, body: [1])) }
            let handled = Box(0)
            let answer: (Frame, RunLoop.PassedDescriptors) -> [UInt8]? = { _, _ in
                handled.increment()
                return [UInt8](repeating: 1, count: Self.size)
            }
            for _ in 0..<20 { _ = server.serve(answer) }
            // Three frames are the limit, and four replies are more.
            #expect(handled.value == 4 && server.limits.replyBytes > 4 * Self.size)
            let before = handled.value
            let reader = try RawClient(name)
            reader.send(rawFrame(length: 0, body: [1]))
            for _ in 0..<20 { _ = server.serve(answer) }
            #expect(handled.value == before && server.hasWaiters)
            for _ in 0..<12 {
                clock.advance(by: StallDetector.interval)
                _ = server.serve(answer)
            }
            #expect(handled.value > before)
            #expect(silent.prefix(before).allSatisfy { $0.isClosedNow } && !reader.isClosedNow)
        }
    }

    @Test func `a reply that was read in part is counted whole`() throws {
        try withServer { server, name, _ in
            let handled = Box(0)
            let answer: (Frame, RunLoop.PassedDescriptors) -> [UInt8]? = { _, _ in
                handled.increment()
                return [UInt8](repeating: 1, count: Self.size)
            }
            let clients = try (0..<4).map { _ in try RawClient(name) }
            var buffer = [UInt8](repeating: 0, count: 1 << 12)
            for client in clients {
                client.send(rawFrame(length: 0, body: [1]))
                // Reads until less than 300 kB are left to send. The kernel takes less than that at a time, so something is left.
                var (read, inSocket, rounds) = (0, Int32(0), 0)
                while Self.size - read - Int(inSocket) >= 300_000 && rounds < 10_000 {  // ends: at its limit
                    rounds += 1
                    _ = server.serve(answer)
                    read += max(0, recv(client.descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT)))
                    #expect(ioctl(client.descriptor, UInt(FIONREAD), &inSocket) == 0)
                }
                #expect(rounds < 10_000)
            }
            #expect(handled.value == 4)
            let next = try RawClient(name)
            next.send(rawFrame(length: 0, body: [1]))
            for _ in 0..<20 { _ = server.serve(answer) }
            #expect(handled.value == 4 && server.hasWaiters && !next.isClosedNow)
        }
    }

    @Test func `a deferred request does not keep the port's set readable`() throws {
        try withServer { server, name, clock in
            let silent = try (0..<5).map { _ in try RawClient(name) }
            for client in silent { client.send(rawFrame(length: 0, body: [1])) }
            let served = Box<Set<UInt64>>([])
            let answer: (Frame, RunLoop.PassedDescriptors) -> [UInt8]? = { frame, _ in
                served.change { $0.insert(frame.conversation) }
                return [UInt8](repeating: 1, count: Self.size)
            }
            for _ in 0..<20 { _ = server.serve(answer) }
            let reader = try RawClient(name)
            for conversation: UInt64 in [70, 71] {
                reader.send(rawFrame(length: 0, conversation: conversation, body: [1]))
                for _ in 0..<20 { _ = server.serve(answer) }
            }
            #expect(served.value == [1] && server.hasWaiters)
            // The loop watches the set with a level trigger: a connection that stays ready and is not read makes the loop spin.
            var set = server.set
            var ready = [cplatform_port_event](repeating: cplatform_port_event(), count: 64)
            let count = Int(cplatform_port_set_take(&set, &ready, 64))
            let readyConnections = ready[..<count].filter { server.testsOnlyHasConnection($0.token) }
            #expect(readyConnections.isEmpty)
            for _ in 0..<1_000 where !served.value.isSuperset(of: [70, 71]) {
                clock.advance(by: StallDetector.interval)
                _ = server.serve(answer)
                #expect(!reader.isClosedNow)
            }
            #expect(served.value == [1, 70, 71])
        }
    }

    @Test func `messages with descriptors wait for each other, and all are handled`() async {
        // In a process of its own: descriptors of other tests that wait to be closed would count too.
        await #expect(processExitsWith: .success) {
            // In manual time, so that no client stalls, however slow the machine is.
            let (name, clock) = (freshName("limits"), RunLoop.ManualClock())
            let server = try PortServer(try PortName(name), maximumLength: 1 << 20, descriptorLimit: 256) { clock.now }
            defer {
                server.withdraw()
                server.end()
            }
            let pipe = Pipe()
            let count = 24
            let clients = try (0..<count).map { _ in try RawClient(name) }
            let body = 1 << 14
            for client in clients {
                sendRaw(client.descriptor, rawFrame(1, descriptors: 60, length: UInt32(body)), [Int32](repeating: pipe.writeEnd, count: 60))
            }
            let handled = Box(0)
            for _ in 0..<50 { _ = server.serve { _, _ in nil } }
            // Each is completed after all have begun.
            for client in clients { client.send([UInt8](repeating: 1, count: body + 1)) }
            for _ in 0..<1_000 where handled.value < count {
                _ = server.serve { _, passed in
                    #expect(passed.count == 60)
                    handled.increment()
                    return nil
                }
                try waitForCloser()
            }
            #expect(handled.value == count && clients.allSatisfy { !$0.isClosedNow })
        }
    }

    // MARK: The memory pool alone

    @Test func `memory is granted in order, first to the process with the least, and never beyond the limit`() {
        var generator = SeededGenerator(seed: 7)
        for _ in 0..<200 {
            var pool = MemoryPool(longest: 10, atLeast: 0)
            var holding: [UInt64: (process: Int32, amount: Int)] = [:]
            var waiting: [(token: UInt64, process: Int32, amount: Int)] = []
            var token: UInt64 = 0
            func checkGrants(_ given: [UInt64]) {
                for one in given {
                    guard let index = waiting.firstIndex(where: { $0.token == one }) else {
                        Issue.record("\(one) was not waiting")
                        continue
                    }
                    let asker = waiting.remove(at: index)
                    // No connection of the same process has waited longer.
                    #expect(!waiting[..<index].contains { $0.process == asker.process })
                    holding[one] = (asker.process, asker.amount)
                }
            }
            for _ in 0..<200 {
                if Bool.random(using: &generator) || holding.isEmpty {
                    token += 1
                    let asker = (
                        token: token, process: Int32.random(in: 1...3, using: &generator), amount: Int.random(in: 1...10, using: &generator)
                    )
                    waiting.append(asker)
                    if pool.request(asker.amount, for: token, process: asker.process) { checkGrants([token]) }
                } else {
                    let all = holding.keys.sorted() + waiting.map(\.token)
                    let gone = all.randomElement(using: &generator)!
                    holding[gone] = nil
                    waiting.removeAll { $0.token == gone }
                    checkGrants(pool.release(gone))
                }
                let sum = holding.values.reduce(0) { $0 + $1.amount }
                #expect(sum == pool.testsOnlyGranted && sum <= pool.size + pool.reserve)
                #expect(pool.hasWaiters == !waiting.isEmpty)
                // A process without memory waits only if the reserve is used up too.
                if let poor = waiting.first(where: { asker in !holding.values.contains { $0.process == asker.process } }) {
                    #expect(sum + 10 > pool.size, "\(poor) waits although there is memory")
                }
                if holding.isEmpty { #expect(waiting.isEmpty) }
            }
        }
    }
}

/// The same numbers in every run.
private struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    init(seed: UInt64) { state = seed }
    mutating func next() -> UInt64 {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return state ^ state >> 29
    }
}

#endif
