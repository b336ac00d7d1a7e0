// W16: an HTTP/1.1 server with keep-alive connections under wrk, which is a process of its own. The servers have one or two loops; two
// listen on one port (SO_REUSEPORT), and the kernel distributes the connections. Loop 0 runs on processor 0, loop 1 and wrk on processor 1.
//
// wrk runs for a fixed time, so the "operations" of a run are its milliseconds. The figure is the processor time of the server's process
// divided by the requests that the server has answered in this time.

import CPerfPeers
import EventLoop
import Glibc

enum W16HTTP {
    static let connections = 64
    static let warmupMilliseconds = 300

    static var cases: [Case] {
        guard wrk != nil else { return [] }
        return [1, 2].map { loops in
            Case(
                "W16.loops\(loops)",
                "HTTP under wrk, \(loops) loop\(loops == 1 ? "" : "s"), \(connections) keep-alive connections, processor time a request",
                metric: .processorTime, amount: .fixed(full: 1_600, quick: 600),
                goals: [Goal("libevent", ratio: 1.03), Goal("nio", ratio: 0.6)],
                contenders: [
                    Contender("eventloop") { measure(eventLoops(loops), $0) },
                    Contender("libevent") { measure(bases(loops), $0) },
                    Contender("nio") { measure(NIOHTTPServer.start(loops: loops), $0) },
                ])
        }
    }

    /// The program; nil if it is not installed.
    static let wrk: String? = String(cString: getenv("PATH") ?? strdup("")).split(separator: ":").map { "\($0)/wrk" }
        .first { access($0, X_OK) == 0 }

    /// A server that runs.
    struct Server {
        let port: UInt16
        /// How many requests it has answered.
        let answered: () -> Int
        let stop: () -> Void
    }

    private static func measure(_ server: Server, _ milliseconds: Int) -> Measurement {
        defer { server.stop() }
        let seconds = (warmupMilliseconds + milliseconds + 1_000) / 1_000
        let load = Load(port: server.port, seconds: seconds)
        usleep(UInt32(warmupMilliseconds) * 1_000)
        let (answered, processor, wall) = (server.answered(), perf_process_cpu_ns(), perf_wall_ns())
        usleep(UInt32(milliseconds) * 1_000)
        var sample = perf_sample()
        sample.cpu_ns = perf_process_cpu_ns() - processor
        sample.wall_ns = perf_wall_ns() - wall
        let ops = server.answered() - answered
        load.finish()
        precondition(ops > 0, "no request was answered")
        return Measurement(sample: sample, ops: ops)
    }

    // MARK: Servers

    private static func eventLoops(_ count: Int) -> Server {
        var port: UInt16 = 0
        let loops = (0..<count).map { index in
            // There is room for a thread, and its loop has not ended.
            let thread = try! RunLoopThread(name: "server \(index)")
            let (server, bound) = try! thread.runLoop.performAndWait { [port] in
                perf_pin_this_thread(Int32(index))
                var port = port
                let server = RunLoop.current.withEventBase { OnePointer(perf_http_serve($0, &port)!) }
                return (server, port)
            }
            port = bound
            return (thread, server)
        }
        return Server(
            port: port, answered: { loops.reduce(0) { $0 + perf_http_answered($1.1.pointer) } },
            stop: {
                for (thread, server) in loops {
                    try! thread.runLoop.performAndWait { perf_http_free(server.pointer) }
                    thread.stop()
                }
            })
    }

    /// An object in C that other threads may refer to.
    private struct OnePointer: @unchecked Sendable {
        // SAFETY: a constant. Its loop's thread makes, uses and frees the object; others read its atomic counter while it exists.
        let pointer: OpaquePointer
        init(_ pointer: OpaquePointer) { self.pointer = pointer }
    }

    private static func bases(_ count: Int) -> Server {
        var port: UInt16 = 0
        let threads = (0..<count).map { peer_libevent_http_thread_start(Int32($0), &port)! }
        return Server(
            port: port, answered: { threads.reduce(0) { $0 + peer_libevent_http_thread_answered($1) } },
            stop: { for thread in threads { peer_libevent_http_thread_stop(thread) } })
    }

    // MARK: The load

    /// wrk, on processor 1 with one loop, anywhere with two.
    private struct Load: ~Copyable {
        private let thread: PlainThread
        private let output: Int32

        init(port: UInt16, seconds: Int) {
            var ends: [Int32] = [0, 0]
            precondition(pipe(&ends) == 0, "the system gives no pipe")
            let (input, output) = (ends[1], ends[0])
            let words = [wrk!, "-t1", "-c\(connections)", "-d\(seconds)s", "http://127.0.0.1:\(port)/hello"]
            self.output = output
            thread = PlainThread {
                // The process inherits it.
                perf_pin_this_thread(1)
                let arguments = words.map { strdup($0) } + [nil]
                var status: Int32 = 0
                let code = perf_run(arguments, input, &status)
                close(input)
                for argument in arguments { free(argument) }
                precondition(code == 0 && status == 0, "wrk failed")
            }
        }

        /// Waits for its end.
        consuming func finish() {
            let output = output
            thread.join()
            let report = Terminal.readToEnd(of: output)
            close(output)
            precondition(!report.contains("Non-2xx") && !report.contains("Socket errors"), report)
        }
    }
}
