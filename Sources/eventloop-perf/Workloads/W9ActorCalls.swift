// W9: calls into an actor on a loop; the calling task uses the results. One operation is one call. The task prefers the loop, or it runs on
// the global pool and changes threads twice for each call.

import EventLoop

enum W9ActorCalls {
    /// An actor on a loop.
    private actor Account {
        private let loop: RunLoop
        private var balance = 0
        nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

        init(on loop: RunLoop) { self.loop = loop }

        func deposit(_ amount: Int) -> Int {
            balance += amount
            return balance
        }
    }

    static var cases: [Case] {
        [
            Case(
                "W9.actor", "a call into an actor on a loop, from a task that prefers the loop", amount: .upTo(1_000_000),
                goals: [Goal("global-pool", ratio: 0.02)], gated: [.allocations],
                contenders: [
                    Contender("eventloop") { calls($0, prefersLoop: true) },
                    Contender("global-pool", maximum: 50_000) { calls($0, prefersLoop: false) },
                ])
        ]
    }

    static func calls(_ ops: Int, prefersLoop: Bool) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let account = Account(on: loop)
            meter.begin()
            if prefersLoop {
                Task(executorPreference: loop) { await callAndStop(account, ops, loop) }
            } else {
                Task.detached { await callAndStop(account, ops, loop) }
            }
            while loop.run(for: .seconds(60)) != .stopped {}  // ends: with the last call
            meter.end()
        }
    }

    private static func callAndStop(_ account: Account, _ ops: Int, _ loop: RunLoop) async {
        var balance = 0
        for _ in 0..<ops { balance = await account.deposit(1) }
        precondition(balance == ops, "a call was lost")
        loop.stop(sticky: true)
    }
}
