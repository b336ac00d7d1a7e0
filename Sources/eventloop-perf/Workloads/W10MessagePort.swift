// W10: a request of 64 bytes to another process, and its reply of 64 bytes. One operation is a round trip. The other process is this
// program again, started with arguments that select how it answers. Also requests that are cancelled beside many pending ones.

import CPerfPeers
import EventLoop
import EventLoopMessagePorts
import Glibc

enum W10MessagePort {
    static let warmup = 500
    /// More requests than a socket has room for.
    private static let socketful = 2_000
    private static let partnerOption = "--answer-round-trips"

    static var cases: [Case] {
        [("one-core", Int32(0), "both on one processor"), ("two-cores", -1, "anywhere")].map { id, processor, place in
            Case(
                "W10.\(id)", "round trip between two processes, \(place)", amount: .upTo(100_000),
                goals: [Goal("libevent", ratio: 1.3)], gated: id == "one-core" ? [.allocations, .systemCalls] : [],
                contenders: [
                    Contender("eventloop") { messagePort(processor, $0) },
                    Contender("eventloop-async") { tasks(processor, $0) },
                    Contender("libevent") { bareSocket(processor, $0) },
                ])
        }
            + [10, 40_000].map { pending in
                Case(
                    "W10.cancel\(pending)", "a request is sent and cancelled, beside \(pending) pending", amount: .upTo(100_000),
                    gated: [.allocations, .systemCalls], contenders: [Contender("eventloop") { cancel(pending, $0) }])
            }
    }

    // MARK: The client

    private static func messagePort(_ processor: Int32, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            withRemotePort(processor) { port in
                let data = [UInt8](repeating: 0, count: Int(PERF_MESSAGE))
                @Sendable func ask(_ times: Int) {
                    for _ in 0..<times { _ = try! port.request(id: 1, data: data, sendTimeout: .seconds(10), replyTimeout: .seconds(10)) }
                }
                ask(warmup)
                meter.begin()
                ask(ops)
                meter.end()
            }
        }
    }

    private static func tasks(_ processor: Int32, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            withRemotePort(processor) { port in
                let data = [UInt8](repeating: 0, count: Int(PERF_MESSAGE))
                let loop = RunLoop.current
                let alive = loop.keepAlive()
                func ask(_ times: Int) {
                    Task(executorPreference: loop) {
                        for _ in 0..<times { _ = try! await port.request(id: 1, data: data, timeout: .seconds(10)) }
                        loop.stop()
                    }
                    loop.run()
                }
                ask(warmup)
                meter.begin()
                ask(ops)
                meter.end()
                alive.cancel()
            }
        }
    }

    /// The socket is full, so every request waits in the queue of its connection.
    private static func cancel(_ pending: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let requests = PendingRequests(timeout: .seconds(Int64.max))
            requests.send(socketful + pending)
            func sendAndCancel(_ times: Int) {
                for _ in 0..<times {
                    requests.send(1)
                    requests.cancel(1)
                }
            }
            sendAndCancel(warmup)
            meter.begin()
            sendAndCancel(ops)
            meter.end()
            requests.end()
        }
    }

    private static func bareSocket(_ processor: Int32, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            withPartner(processor, "socket", "-") { peer_libevent_socket_ask($0, warmup, ops, meter.sample) }
        }
    }

    private static func withRemotePort(_ processor: Int32, _ body: (RunLoop.RemoteMessagePort) -> Void) {
        let name = "eventloop-perf.\(getpid()).\(perf_wall_ns())"
        withPartner(processor, "port", name) { _ in
            // The partner is ready.
            body(try! RunLoop.RemoteMessagePort(name: name))
        }
    }

    private static func withPartner(_ processor: Int32, _ kind: String, _ name: String, _ body: (Int32) -> Void) {
        if processor >= 0 { perf_pin_this_thread(processor) }
        let words = ["eventloop-perf", partnerOption, kind, name, "\(processor)"]
        var arguments: [UnsafeMutablePointer<CChar>?] = words.map { word in strdup(word) }
        arguments.append(nil)
        defer { for argument in arguments { free(argument) } }
        var process: Int32 = 0
        let socket = perf_partner_start(&arguments, &process)
        guard socket >= 0, perf_partner_is_ready(socket) else { fatalError("the other process of W10 did not start: errno \(errno)") }
        body(socket)
        perf_partner_end(socket, process)
    }

    // MARK: The server

    /// Returns true if this process is a partner; its work is then done.
    static func servedAsPartner(_ arguments: [String]) -> Bool {
        guard arguments.count == 5, arguments[1] == partnerOption, let processor = Int32(arguments[4]) else { return false }
        if processor >= 0 { perf_pin_this_thread(processor) }
        let socket = Int32(PERF_PARTNER_SOCKET)
        if arguments[2] == "socket" {
            perf_partner_say_ready()
            peer_libevent_socket_answer(socket)
            return true
        }
        let loop = RunLoop.current
        let port = try! RunLoop.LocalMessagePort(name: arguments[3]) { _, _, data in data }
        let end = try! RunLoop.DescriptorSource(descriptor: socket, events: .read) { _, _ in loop.stop() }
        loop.add(port)
        loop.add(end)
        perf_partner_say_ready()
        loop.run()
        port.invalidate()
        end.invalidate()
        return true
    }
}
