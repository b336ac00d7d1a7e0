// The code of docs/datagrams.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopDatagrams
import EventLoopTestSupport
import Testing

/// Sends each datagram back.
func startEcho(on loop: RunLoop) throws -> DatagramSocket {
    let socket = try DatagramSocket(boundTo: .ipv4(host: "127.0.0.1", port: 0), on: loop)
    socket.onReceive { socket, datagram in socket.send(datagram.bytes, to: datagram.peer) }
    return socket
}

/// Asks until an answer arrives, because datagrams may be lost.
func ask(_ question: [UInt8], of server: RunLoop.SocketAddress, on loop: RunLoop) async throws -> [UInt8] {
    let socket = try DatagramSocket(connectedTo: server, on: loop)
    defer { socket.close() }
    let questions = Task {
        while !Task.isCancelled {
            // A refused question is asked again: the server may start later.
            try? await socket.write(question)
            try await loop.clock.sleep(for: .seconds(1))
        }
    }
    defer { questions.cancel() }
    var answers = socket.datagrams.makeAsyncIterator()
    return try await answers.next()?.bytes ?? []
}

/// Adds up the counters that programs send, such as `requests:1|c`.
actor StatsdSink {
    private(set) var counters: [String: Int] = [:]

    func receive(from socket: DatagramSocket) async throws {
        for try await datagram in socket.datagrams where !datagram.isTruncated {
            for line in String(decoding: datagram.bytes, as: UTF8.self).split(separator: "\n") { add(line) }
        }
    }

    private func add(_ line: Substring) {
        let parts = line.split(whereSeparator: { $0 == ":" || $0 == "|" })
        guard parts.count >= 3, parts[2] == "c", let value = Int(parts[1]) else { return }
        counters[String(parts[0]), default: 0] &+= value
    }
}

/// Hears what is sent to a group in this network.
func hearGroup(on loop: RunLoop) throws -> DatagramSocket {
    var options = DatagramSocket.Options()
    options.sharesPort = true
    let socket = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 5_353), on: loop, options: options)
    try socket.join(.ipv4(host: "224.0.0.251", port: 5_353), interface: "eth0")
    return socket
}

@Suite(.bounded, .tags(.memory)) struct DocumentedDatagrams {
    @Test func `the client of the page gets the answer of the server`() async throws {
        try await withSockets { loop, _ in
            let server = try startEcho(on: loop)
            #expect(try await ask([1, 2, 3], of: server.localAddress, on: loop) == [1, 2, 3])
        }
    }

    @Test func `the sink of the page adds up counters, and ignores what is none`() async throws {
        try await withSockets { loop, _ in
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let sink = StatsdSink()
            let receiving = Task { try await sink.receive(from: socket) }
            let client = try DatagramSocket(connectedTo: socket.localAddress, on: loop)
            for text in ["a:1|c\nb:2|c", "a:x|c", "", ":|:|", "a:5|g", "a:40|c"] { try await client.write(Array(text.utf8)) }
            try await suspendUntil("all are counted") { await sink.counters == ["a": 41, "b": 2] }
            socket.close()
            try await receiving.value
        }
    }
}
