// W2c: messages from another thread to a port of a loop. One operation is one message, which is only an id.
//
// The goal of the port with both ends at work is absolute: a million messages a second, which is 1,000 ns each. The peers do
// the closest thing they have: they perform a closure, or send eight bytes through a pipe.

import CPerfPeers
import Dispatch
import EventLoop
import Glibc

enum W2cPorts {
    static var cases: [Case] {
        [
            Case(
                "W2c.port.free", "a message to a port, both ends at work", amount: .upTo(5_000_000),
                goals: [Goal("pipe", ratio: 0.6), Goal("dispatch", ratio: 1)],
                contenders: [
                    Contender("eventloop") { port($0, capacity: 1024, .free) },
                    Contender("eventloop-perform", measure: perform),
                    Contender("pipe", maximum: 1_000_000, measure: pipe),
                    Contender("dispatch", measure: dispatch),
                ]),
            Case(
                "W2c.port.held-send", "a message to a port whose loop is in a handler, sending alone", amount: .upTo(1_000_000),
                gated: [.allocations, .systemCalls],
                contenders: [Contender("eventloop") { port($0, capacity: $0, .heldSend) }]),
            Case(
                "W2c.port.held-drain", "the same, delivering alone", amount: .upTo(1_000_000), gated: [.allocations],
                contenders: [Contender("eventloop") { port($0, capacity: $0, .heldDrain) }]),
            Case(
                "W2c.port.one", "a message to a port of the same thread, and the run that delivers it", amount: .upTo(1_000_000),
                gated: [.allocations, .systemCalls],
                contenders: [Contender("eventloop", measure: one)]),
        ]
    }

    private enum Part { case free, heldSend, heldDrain }

    private static func port(_ ops: Int, capacity: Int, _ part: Part) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let countdown = OnLoop(perf_countdown_make(ops))
            defer { perf_countdown_free(countdown.pointer) }
            let port = RunLoop.Port(capacity: capacity) { _, _ in
                if perf_countdown_hit(countdown.pointer) { RunLoop.current.stop() }
            }
            loop.add(port)
            let gang = Gang(producers: 1, posts: ops) { messages in
                for id in 0..<messages {
                    do { try port.send(RunLoop.PortMessage(id: UInt32(truncatingIfNeeded: id)), before: .distantFuture) } catch {
                        fatalError("\(error)")
                    }
                }
            }
            if part == .free {
                meter.begin()
                gang.open()
                loop.run()
                meter.end()
                gang.join()
            } else {
                loop.perform {
                    if part == .heldSend { meter.begin() }
                    gang.open()
                    gang.join()
                    if part == .heldSend { meter.end() } else { meter.begin() }
                }
                loop.run()
                if part == .heldDrain { meter.end() }
            }
            port.invalidate()
        }
    }

    private static func one(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let port = RunLoop.Port { _, _ in }
            loop.add(port)
            for turn in 0..<ops + 100 {
                if turn == 100 { meter.begin() }
                do { try port.send(RunLoop.PortMessage(id: 1)) } catch { fatalError("\(error)") }
                precondition(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
            }
            meter.end()
            port.invalidate()
        }
    }

    private static func perform(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let idle = loop.keepAlive()
            defer { idle.cancel() }
            let countdown = OnLoop(perf_countdown_make(ops))
            defer { perf_countdown_free(countdown.pointer) }
            let gang = Gang(producers: 1, posts: ops) { posts in
                for id in 0..<posts {
                    loop.perform { if id >= 0 && perf_countdown_hit(countdown.pointer) { RunLoop.current.stop() } }
                }
            }
            meter.begin()
            gang.open()
            loop.run()
            meter.end()
            gang.join()
        }
    }

    /// One write for each message; one read takes all that are there.
    private static func pipe(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            var ends: [Int32] = [0, 0]
            precondition(Glibc.pipe(&ends) == 0)
            defer { for end in ends { close(end) } }
            let (readEnd, writeEnd) = (ends[0], ends[1])
            let gang = Gang(producers: 1, posts: ops) { messages in
                for id in 0..<messages {
                    var word = UInt64(id)
                    precondition(write(writeEnd, &word, 8) == 8)
                }
            }
            var left = ops
            var buffer = [UInt64](repeating: 0, count: 1024)
            meter.begin()
            gang.open()
            while left > 0 { left -= read(readEnd, &buffer, 8 * 1024) / 8 }
            meter.end()
            gang.join()
        }
    }

    private static func dispatch(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let queue = DispatchQueue(label: "mailbox")
            let done = DispatchSemaphore(value: 0)
            let countdown = OnLoop(perf_countdown_make(ops))
            defer { perf_countdown_free(countdown.pointer) }
            let gang = Gang(producers: 1, posts: ops) { posts in
                for id in 0..<posts {
                    queue.async { if id >= 0 && perf_countdown_hit(countdown.pointer) { done.signal() } }
                }
            }
            meter.begin()
            gang.open()
            done.wait()
            meter.end()
            gang.join()
        }
    }
}
