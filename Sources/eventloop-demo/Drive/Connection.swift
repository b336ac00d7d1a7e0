// One client: a keep-alive connection that sends a request, waits for the answer, and sends the next.
//
// Lifecycle of the descriptor: the socket source makes it and passes it to the stream, which closes it. Everything here runs on the loop of
// the load.

import EventLoop
import EventLoopStreams

final class Connection {
    /// What to do after a complete answer.
    enum Next { case askAgain, close }

    let number: Int
    private(set) var answered = 0
    private unowned let load: Load
    private let request: [UInt8]
    private var connecting: RunLoop.SocketSource?
    private var stream: ByteStream?
    private var sentAt = RunLoop.Instant.distantPast

    /// On the loop of the load, which must outlive the connection.
    init(number: Int, load: Load, port: UInt16) throws(DemoError) {
        (self.number, self.load) = (number, load)
        request = Array("GET / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\n\r\n".utf8)
        do {
            let here = LoopBound(self)
            let source = try RunLoop.SocketSource(connectingTo: .ipv4(host: "127.0.0.1", port: port), label: "client \(number)") {
                _, result in here.value.connected(result)
            }
            RunLoop.current.add(source)
            connecting = source
        } catch {
            throw DemoError(sentence: "client \(number) cannot connect: \(error)")
        }
    }

    /// Idempotent. No handler is called afterwards.
    func close() {
        connecting?.invalidate()
        stream?.close()
    }

    private func connected(_ result: Result<Int32, RunLoop.SourceError>) {
        load.recorder.handling(.response(connection: number))
        let here = LoopBound(self)
        do {
            let stream = try ByteStream(adopting: try result.get(), on: .current, label: "client \(number)")
            stream.onReceive { _, bytes in here.value.received(&bytes) }
            stream.onEnd { _, end in here.value.ended(end) }
            self.stream = stream
            ask()
        } catch {
            fail("cannot connect", "\(error)")
        }
    }

    private func ask() {
        sentAt = .now
        // One small request at a time: there is always room. If the connection has broken, `ended` says so.
        stream?.send(request)
    }

    private func received(_ bytes: inout ReceivedBytes) {
        load.recorder.handling(.response(connection: number))
        switch bytes.withUnsafeBytes(Response.examine) {
        case .incomplete: break  // called again with more
        case .malformed: fail("got no proper answer", "\(bytes.count) bytes")
        case .complete:
            bytes.consume(bytes.count)
            answered += 1
            switch load.connection(self, answeredAfter: Format.nanoseconds(of: sentAt.duration(to: .now))) {
            case .askAgain: ask()
            case .close: close()
            }
        }
    }

    private func ended(_ end: ByteStream.End) {
        switch end {
        case .closed: break
        case .endOfStream: fail("lost its connection", "the server closed it")
        case .failed(let error): fail("lost its connection", "\(error)")
        case .timedOut, .loopEnded: fail("lost its connection", "\(end)")
        }
    }

    private func fail(_ what: String, _ reason: String) {
        load.connection(self, failed: "client \(number) \(what): \(reason)")
    }
}
