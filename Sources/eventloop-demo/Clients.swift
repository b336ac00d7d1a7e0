// The clients of `make run`: connections on one loop that send a line, wait for the answer, and send the next.

import EventLoop
import EventLoopStreams

/// Belongs to the thread that makes it, like everything here.
final class Clients {
    private var open: [Int: Client] = [:]
    fileprivate let recorder: PassRecorder
    fileprivate var isFinishing = false
    /// How long the answers of this second took.
    fileprivate var latencies = RunLoop.Histogram()
    fileprivate(set) var answers = 0
    fileprivate(set) var failure: String?

    init(_ count: Int, of address: RunLoop.SocketAddress, recorder: PassRecorder) throws {
        self.recorder = recorder
        for number in 1...count { open[number] = try Client(number, self, address) }
    }

    var areDone: Bool { open.isEmpty }

    /// Each client closes after the answer that it waits for.
    func finish() { isFinishing = true }

    func takeSecond() -> RunLoop.Histogram {
        defer { latencies = RunLoop.Histogram() }
        return latencies
    }

    fileprivate func remove(_ number: Int, because reason: String? = nil) {
        open[number] = nil
        failure = failure ?? reason.map { "client \(number): \($0)" }
    }
}

private final class Client {
    private let number: Int
    private unowned let clients: Clients  // removes this client before it goes
    private var connecting: RunLoop.SocketSource?
    private var stream: ByteStream?
    private var sentAt = RunLoop.Instant.now

    init(_ number: Int, _ clients: Clients, _ address: RunLoop.SocketAddress) throws {
        (self.number, self.clients) = (number, clients)
        // Handlers run on the loop of their source. A LoopBound carries what belongs to its thread into them.
        let here = LoopBound(self)
        let source = try RunLoop.SocketSource(connectingTo: address, label: "client \(number)") { _, result in here.value.connected(result)
        }
        RunLoop.current.add(source)
        connecting = source
    }

    private func connected(_ result: Result<Int32, RunLoop.SourceError>) {
        let here = LoopBound(self)
        do {
            let stream = try ByteStream(adopting: try result.get(), on: .current, label: "client \(number)")
            stream.onReceive { _, bytes in here.value.received(&bytes) }
            stream.onEnd { _, end in here.value.ended(end) }
            self.stream = stream
            ask()
        } catch {
            clients.remove(number, because: "\(error)")
        }
    }

    private func ask() {
        sentAt = .now
        stream?.send("hello\n")
    }

    private func received(_ bytes: inout ReceivedBytes) {
        clients.recorder.handles(client: number)
        guard bytes.takeLine() != nil else { return }  // called again with more
        clients.answers += 1
        clients.latencies.record(sentAt.duration(to: .now))
        if clients.isFinishing { stream?.close() } else { ask() }
    }

    private func ended(_ end: ByteStream.End) {
        if case .closed = end { clients.remove(number) } else { clients.remove(number, because: "\(end)") }
    }
}
