// Runs the whole conversation of the Guide's Listings 3-12 to 3-15: a thread makes a port, starts a worker and passes it the port. The
// worker replies from a port of its own, and the two exchange messages until the thread tells the worker to exit. Each run handles one
// source, as in the Guide.

import EventLoop
import EventLoopTestSupport
import Testing

private typealias Message = RunLoop.PortMessage

@Suite(.tags(.memory)) struct CheckInTests {
    private static let checkIn: UInt32 = 100, count: UInt32 = 1, exit: UInt32 = 2

    /// Listings 3-14 and 3-15.
    private static func launchThread(with main: RunLoop.Port, _ trace: Trace) -> JoinableThread<Int> {
        plainThread {
            let loop = RunLoop.current
            let shouldExit = Box(false)
            let turns = Counter()
            let port = RunLoop.Port { port, message in
                #expect(loop.isCurrent)
                #expect(message.replyPort === main)
                turns.increment()
                if message.id == exit { shouldExit.value = true }
                try! message.replyPort!.send(Message(id: message.id + 1_000, replyPort: port))
            }
            loop.add(port)
            // The date is the present, so `send` tries once. The message has no components.
            try main.send(Message(id: checkIn, replyPort: port), before: .now)
            while !shouldExit.value { #expect(loop.run(until: .now + patience, returnAfterSourceHandled: true) == .handledSource) }
            return turns.value
        }
    }

    @Test(arguments: [0, 1, 50])
    func `a worker checks in, exchanges messages, and exits`(rounds: Int) throws {
        try onFreshThread { loop in
            let trace = Trace()
            let isOver = Box(false)
            let distant = Box<RunLoop.Port?>(nil)
            let left = Box(rounds)
            @Sendable func tell(_ worker: RunLoop.Port, _ port: RunLoop.Port) {
                let isLast = left.value == 0
                left.value -= 1
                try! worker.send(Message(id: isLast ? Self.exit : Self.count, replyPort: port))
            }
            let port = RunLoop.Port { port, message in
                #expect(loop.isCurrent)
                if message.id == Self.checkIn {
                    #expect(message.components.isEmpty)
                    distant.value = message.replyPort
                } else {
                    #expect(message.replyPort === distant.value)
                }
                if message.id == Self.exit + 1_000 { isOver.value = true } else { tell(message.replyPort!, port) }
            }
            loop.add(port)
            let worker = Self.launchThread(with: port, trace)
            while !isOver.value { #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource) }
            let turns = try worker.join()
            #expect(turns == rounds + 1)
            // The end of the worker's loop does not invalidate the worker's port, because `distant` still retains it.
            #expect(distant.value!.isValid)
            #expect(loop.statistics.sourcesHandled == UInt64(rounds + 2))
            // Each port's handler knows the other port, so the code that makes such a pair must invalidate it.
            distant.value!.invalidate()
            port.invalidate()
        }
    }
}
