// Rules proved here, with many threads (semantics 16.7, 16.11, 16.13; Messages.swift):
// - No message is lost or delivered twice, and each sender's order is kept, while many threads send and others add and remove the port.
// - If a port is in several loops, its handler never runs on two threads at once, and each message is delivered once.
// - If a port is invalidated while threads send to it, no sender continues to wait.

import EventLoop
import EventLoopTestSupport
import Testing

private typealias Message = RunLoop.PortMessage

/// The messages that a port received, by sender. Each sender counts from zero.
private final class Book: Sendable {
    let next: Box<[UInt32]>
    let disorder = Box(0)
    let total = Counter()
    init(senders: Int) { next = Box(Array(repeating: 0, count: senders)) }

    func enter(_ message: Message) {
        let sender = Int(message.id >> 24)
        let number = message.id & 0xFF_FFFF
        let isNext = next.change { next in
            defer { next[sender] = number + 1 }
            return next[sender] == number
        }
        if !isNext { disorder.increment() }
        total.increment()
    }

    static func id(_ sender: Int, _ number: Int) -> UInt32 { UInt32(sender) << 24 | UInt32(number) }
}

private func sendAll(_ count: Int, from sender: Int, to port: RunLoop.Port) throws {
    for number in 0..<count { try port.send(Message(id: Book.id(sender, number)), before: .now + patience) }
}

@Suite(.tags(.threads)) struct PortRaceTests {
    @Test(arguments: [1, 3, 64, 4096])
    func `no message of many senders is lost, and each sender's order is kept`(capacity: Int) throws {
        let (senders, each) = (4, 5_000 / roundsDivisor)
        let book = Book(senders: senders)
        let published = Box<RunLoop.Port?>(nil)
        let running = RunningLoop { loop in
            let port = RunLoop.Port(capacity: capacity) { _, message in
                book.enter(message)
                if book.total.value == senders * each { loop.stop() }
            }
            loop.add(port)
            published.value = port
        }
        let port = published.value!
        let threads = (0..<senders).map { sender in plainThread { try sendAll(each, from: sender, to: port) } }
        for thread in threads { try thread.join() }
        #expect(try running.join() == .stopped)
        #expect(book.total.value == senders * each)
        #expect(book.disorder.value == 0)
    }

    @Test func `a port that is added and removed repeatedly loses no message`() throws {
        let (senders, each) = (2, 3_000 / roundsDivisor)
        let book = Book(senders: senders)
        let running = RunningLoop()
        let port = RunLoop.Port(capacity: 16) { _, message in book.enter(message) }
        let threads = (0..<senders).map { sender in plainThread { try sendAll(each, from: sender, to: port) } }
        var round = 0
        // While the port is in the loop, the loop delivers its messages.
        try waitUntil("all messages are handed out") {
            for _ in 0..<100 {
                running.loop.add(port, forMode: round % 2 == 0 ? .default : .common)
                for _ in 0..<round % 5 { breathe() }
                running.loop.remove(port, forMode: round % 2 == 0 ? .default : .common)
                round += 1
            }
            return book.total.value >= senders * each
        }
        for thread in threads { try thread.join() }
        #expect(book.total.value == senders * each)
        #expect(book.disorder.value == 0)
        try running.end()
    }

    @Test func `a port in several loops delivers each message once, in order, and on one thread at a time`() throws {
        let (senders, each) = (2, 5_000 / roundsDivisor)
        let book = Book(senders: senders)
        let (inside, overlaps) = (Box(0), Box(0))
        let loops = (0..<3).map { _ in RunningLoop() }
        let served = Box<Set<UInt64>>([])
        let port = RunLoop.Port(capacity: 8) { _, message in
            if inside.increment() > 1 { overlaps.increment() }
            book.enter(message)
            if message.id % 16 == 0 { breathe() }
            served.change { _ = $0.insert(UInt64(currentThreadID())) }
            inside.change { $0 -= 1 }
        }
        for running in loops { running.loop.add(port) }
        let threads = (0..<senders).map { sender in plainThread { try sendAll(each, from: sender, to: port) } }
        for thread in threads { try thread.join() }
        try waitUntil("all messages") { book.total.value == senders * each }
        #expect(book.disorder.value == 0)
        #expect(overlaps.value == 0)
        port.invalidate()
        for running in loops { try running.end() }
        #expect(book.total.value == senders * each)
    }

    @Test func `while a port's handler runs on one loop, the port's other loop sleeps`() throws {
        let trace = Trace()
        let (entered, leave) = (Gate(), Gate())
        let (first, second) = (RunningLoop(), RunningLoop())
        let port = RunLoop.Port { _, message in
            trace.add("\(message.id) on \(first.loop.isCurrent ? "first" : "second")")
            if message.id == 1 {
                entered.open()
                leave.wait()
                // From now on only the second loop has the port.
                first.loop.remove(message.replyPort!)
            }
        }
        first.loop.add(port)
        try port.send(Message(id: 1, replyPort: port))
        entered.wait()
        second.loop.add(port)
        try port.send(2)
        try waitUntilAsleep(second.loop)
        // The second loop stays asleep. A loop that checks repeatedly could seem asleep as well, so this counts the passes.
        let passes = second.loop.statistics.passes
        for _ in 0..<1_000 { breathe() }
        try waitUntilAsleep(second.loop)
        #expect(second.loop.statistics.passes - passes <= 2)
        #expect(trace.description == "1 on first")
        leave.open()
        try waitUntil("the second loop's turn") { trace.list.count == 2 }
        #expect(trace.description == "1 on first 2 on second")
        port.invalidate()
        try first.end()
        try second.end()
    }

    @Test func `a port invalidated while threads send to it leaves no sender waiting, and calls onInvalidation once`() throws {
        for round in 0..<100 / roundsDivisor {
            let ends = Counter()
            let running = RunningLoop()
            let port = RunLoop.Port(capacity: 2) { port, message in
                if round % 3 == 0 && message.id == 5 { port.invalidate() }
            }
            port.onInvalidation { ends.increment() }
            running.loop.add(port)
            let threads = (0..<3).map { _ in
                plainThread {
                    var id: UInt32 = 0
                    while true {  // ends: the port becomes invalid
                        do {
                            try port.send(Message(id: id, replyPort: port), before: .now + patience)
                            id += 1
                        } catch { return error as? RunLoop.PortError }
                    }
                }
            }
            for _ in 0..<round % 10 { breathe() }
            if round % 3 != 0 { port.invalidate() }
            for thread in threads { #expect(try thread.join() == .invalidPort) }
            try running.end()
            #expect(ends.value == 1)
        }
    }

    @Test func `two loops can send messages to each other without end`() throws {
        let rounds = 20_000 / roundsDivisor
        let ports = Box<[RunLoop.Port]>([])
        func player() -> RunningLoop {
            RunningLoop { loop in
                let port = RunLoop.Port(capacity: 1) { port, message in
                    if message.id == 0 { return loop.stop() }
                    // The player that sends last stops first.
                    try! message.replyPort!.send(Message(id: message.id - 1, replyPort: port))
                    if message.id == 1 { loop.stop() }
                }
                loop.add(port)
                ports.value.append(port)
            }
        }
        let players = [player(), player()]
        try ports.value[0].send(Message(id: UInt32(rounds), replyPort: ports.value[1]))
        for player in players { #expect(try player.join() == .stopped) }
    }

    @Test func `waiting senders get room while the loop takes one message at a time`() throws {
        let (senders, each) = (3, 300 / roundsDivisor)
        let book = Book(senders: senders)
        let port = RunLoop.Port(capacity: 1) { _, message in book.enter(message) }
        let threads = (0..<senders).map { sender in plainThread { try sendAll(each, from: sender, to: port) } }
        try onFreshThread { loop in
            loop.add(port)
            for _ in 0..<senders * each {
                #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
                // Gives some of the senders time to fall asleep.
                for _ in 0..<20 { breathe() }
            }
        }
        for thread in threads { try thread.join() }
        #expect(book.disorder.value == 0)
        #expect(book.total.value == senders * each)
    }
}

@Suite(.tags(.threads)) struct PortTrafficTests {
    @Test func `a batch of messages to a busy loop causes no wake-up and at most two passes`() throws {
        let (entered, leave) = (Gate(), Gate())
        let count = Counter()
        let published = Box<RunLoop.Port?>(nil)
        let running = RunningLoop { loop in
            let port = RunLoop.Port { _, message in
                count.increment()
                if message.id == 0 {
                    entered.open()
                    leave.wait()
                }
            }
            loop.add(port)
            published.value = port
        }
        let port = published.value!
        try waitUntilAsleep(running.loop)
        try port.send(0)
        entered.wait()
        let before = running.loop.statistics
        for id in 1...500 as ClosedRange<UInt32> { try port.send(id) }
        leave.open()
        try waitUntil("all messages") { count.value == 501 }
        try waitUntilAsleep(running.loop)
        let after = running.loop.statistics
        #expect(after.wakeUps == before.wakeUps)
        // One pass delivers the messages that arrived meanwhile, and one goes to sleep.
        #expect(after.passes - before.passes <= 2)
        #expect(after.sourcesHandled - before.sourcesHandled == 501)
        try running.end()
    }
}

@Suite(.tags(.threads)) struct PortCountTests {
    @Test func `the number of waiting messages can be read while messages come and go, and is never negative`() throws {
        // The number was the difference of two counters, read in an order in which it could become negative, which trapped.
        let rounds = 20_000 / roundsDivisor
        let running = RunningLoop()
        let port = RunLoop.Port(capacity: 1) { _, _ in }
        running.loop.add(port)
        let isOver = Box(false)
        let askers = (0..<2).map { _ in
            plainThread { while !isOver.value { _ = running.loop.debugDescription } }
        }
        for _ in 0..<rounds { try port.send(Message(id: 1), before: .now + patience) }
        isOver.value = true
        for asker in askers { try asker.join() }
        try running.end()
    }
}
