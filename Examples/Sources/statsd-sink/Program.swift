// Adds up the counters that programs send as datagrams, in the lines of statsd.
//
//   statsd-sink [PORT]        on 127.0.0.1; prints the sums every ten seconds, and when SIGTERM ends it
//
// A line is `requests:1|c`. Other kinds (gauges, timers) are counted as unknown. Nobody waits for a sink: what comes too fast is lost, and counted.

import EventLoop
import EventLoopDatagrams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

struct Sums {
    private(set) var counters: [String: Int] = [:]
    private(set) var unknownLines = 0
    /// The senders are strangers: they cannot fill the memory with names.
    static let mostNames = 10_000

    mutating func add(_ datagram: Datagram) {
        for line in String(decoding: datagram.bytes, as: UTF8.self).split(separator: "\n") { add(line) }
    }

    private mutating func add(_ line: Substring) {
        let parts = line.split(separator: "|")
        guard parts.count >= 2, parts[1] == "c", let colon = parts[0].lastIndex(of: ":"), let value = Int(parts[0][colon...].dropFirst())
        else {
            return unknownLines += 1
        }
        let name = String(parts[0][..<colon])
        if counters[name] == nil && counters.count >= Self.mostNames { return unknownLines += 1 }
        counters[name, default: 0] &+= value
    }
}

@main
enum Program {
    static func main() throws {
        let port = CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 8_125
        let loop = RunLoop.main
        let sums = LoopBound(Sums(), to: loop)
        var options = DatagramSocket.Options()
        options.receiveBufferSize = 1 << 20
        let socket = try DatagramSocket(boundTo: .ipv4(host: "127.0.0.1", port: port), on: loop, options: options)
        socket.onReceive { _, datagram in sums.value.add(datagram) }

        let report: @Sendable () -> Void = {
            for (name, value) in sums.value.counters.sorted(by: { $0.key < $1.key }) { print("\(name) \(value)") }
            let statistics = socket.statistics
            print("received \(statistics.received), lost \(statistics.receiveDrops), unknown \(sums.value.unknownLines)")
            fflush(nil)
        }
        loop.add(RunLoop.Timer(fireAt: loop.clock.now.advanced(by: .seconds(10)), interval: .seconds(10)) { _ in report() })
        loop.add(
            try RunLoop.SignalSource(signal: SIGTERM) { _, _ in
                // In the next pass: what came before the signal is received in this one.
                loop.perform {
                    report()
                    loop.stop()
                }
            })
        print("listening on \(socket.localAddress)")
        fflush(nil)
        loop.run()
        socket.close()
    }
}
