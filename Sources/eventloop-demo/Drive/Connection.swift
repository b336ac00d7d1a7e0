// One client: a keep-alive connection that sends a request, waits for the answer, and sends the next.
//
// Lifecycle of the descriptor: `init` makes it, the source watches it, and `onInvalidation` closes it, when the
// kernel no longer has it in a set. Everything here runs on the loop of the load.

import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

final class Connection {
    /// What to do after a complete answer.
    enum Next { case askAgain, close }

    let number: Int
    private(set) var answered = 0
    private unowned let load: Load
    private let request: [UInt8]
    private let descriptor: Int32
    private var source: RunLoop.DescriptorSource?
    private var isConnected = false
    /// The number of bytes of the request that have been sent.
    private var sent = 0
    private var sentAt = RunLoop.Instant.distantPast
    private var response = Response()

    /// On the loop of the load, which must outlive the connection.
    init(number: Int, load: Load, port: UInt16) throws(DemoError) {
        self.number = number
        self.load = load
        request = Array("GET / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\n\r\n".utf8)
        descriptor = try Sockets.connecting(toPort: port)
        try watch()
    }

    /// Idempotent. The descriptor is closed once the source is out of the loop.
    func close() {
        source?.invalidate()
        source = nil
    }

    private func watch() throws(DemoError) {
        let here = LoopBound(self)
        do {
            // Writable means that the connection is established, or has failed.
            let source = try RunLoop.DescriptorSource(
                descriptor: descriptor, events: .write, label: "client \(number)"
            ) { _, events in here.value.ready(events) }
            source.onInvalidation { Sockets.release($0.descriptor) }
            RunLoop.current.add(source)
            self.source = source
        } catch {
            Sockets.release(descriptor)
            throw DemoError(sentence: "client \(number) cannot be watched: \(error)")
        }
    }

    private func ready(_ events: RunLoop.DescriptorSource.Events) {
        load.recorder.handling(.response(connection: number))
        do throws(DemoError) {
            if events.contains(.write) { try writable() }
            if events.contains(.read), isConnected { try readable() }
        } catch {
            load.connection(self, failed: error.sentence)
        }
    }

    private func writable() throws(DemoError) {
        if !isConnected {
            if let reason = Sockets.pendingError(of: descriptor) { throw failure("cannot connect", reason) }
            isConnected = true
        }
        try ask()
    }

    /// Sends the request, or the rest of it.
    private func ask() throws(DemoError) {
        if sent == 0 { sentAt = .now }
        // Ends: each round sends something, fails, or stops until the socket is writable.
        while sent < request.count {
            let count = request.withUnsafeBytes { bytes in
                send(descriptor, bytes.baseAddress! + sent, bytes.count - sent, sendWithoutSignal)
            }
            if count >= 0 {
                sent += count
            } else if errno == EAGAIN || errno == EWOULDBLOCK {
                break
            } else if errno != EINTR {
                throw failure("cannot send", Sockets.systemError())
            }
        }
        let wanted: RunLoop.DescriptorSource.Events = sent < request.count ? [.read, .write] : .read
        if source?.events != wanted { source?.events = wanted }
    }

    private func readable() throws(DemoError) {
        let count = response.fill { recv(descriptor, $0.baseAddress, $0.count, 0) }
        guard count != 0 else { throw failure("lost its connection", "the server closed it") }
        guard count > 0 else {
            if errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR { return }
            throw failure("lost its connection", Sockets.systemError())
        }
        switch response.examine() {
        case .incomplete: break  // level-triggered: called again if there is more
        case .malformed: throw failure("got no proper answer", "\(response.count) bytes")
        case .complete:
            let latency = Format.nanoseconds(of: sentAt.duration(to: .now))
            answered += 1
            response.clear()
            sent = 0
            switch load.connection(self, answeredAfter: latency) {
            case .askAgain: try ask()
            case .close: close()
            }
        }
    }

    private func failure(_ what: String, _ reason: String) -> DemoError {
        DemoError(sentence: "client \(number) \(what): \(reason)")
    }
}
