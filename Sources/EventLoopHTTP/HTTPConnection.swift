// One connection: requests come in, one at a time is with its handler, and answers go out.
//
// Lifecycle: made by the connection's task, and retained by it, by the stream's handlers until the stream's end, and by the task of a request.
// The connection's task returns when the stream has ended and no request's task is left.

#if HTTP

internal import CPlatform
internal import EventLoopLibC
internal import EventLoop
internal import EventLoopStreams
internal import HTTPTypes
import Synchronization

final class HTTPConnection: @unchecked Sendable {
    // SAFETY: constants, atomics, what `ending` guards, `position`, which the host's lock guards, and what only the loop's thread uses.

    let stream: ByteStream
    let server: HTTPServerCore
    let host: LoopHost
    /// In the host's list of connections.
    var position = 0
    /// Identifies the task in which the handler runs; zero if none does.
    let taskHash = Atomic<Int>(0)

    private struct Ending {
        var isOver = false
        /// Tasks of requests that have not returned.
        var tasks = 0
        var waiter: CheckedContinuation<Void, Never>?
    }
    private let ending = Mutex(Ending())

    enum Phase {
        /// `prepareConnection` runs.
        case preparing
        case reading
        case responding
        /// The last answer is on its way.
        case closing
    }

    // SAFETY: the loop's thread.
    private(set) var phase: Phase
    private var parser: RequestParser
    private var task: Task<Void, Never>?
    /// When the preparation began, the connection became idle, or the request that is being read began.
    private var since: RunLoop.Instant
    private var hasBegun = false
    /// A deadline has passed while the loop was busy, over input that had come in time. It is read until then.
    private var lateDeadline: RunLoop.Instant?
    /// A request has come.
    private var isUsed = false
    private var isDraining = false
    /// Bytes of the client that the parser has consumed.
    private var consumedCount: UInt64 = 0
    /// Bytes that had come when the shutdown began: more than the parser gets of them if they are encrypted, or if `prepareConnection` has read some.
    private var countBeforeDrain: UInt64 = 0
    /// In the host's list of connections whose clients nobody watches.
    var unwatchedPosition = 0
    private(set) var watchDate = RunLoop.Instant.distantFuture
    private var client = Client.unknown
    /// The client may be sent `100 Continue`: it knows HTTP/1.1, and its answer has not begun.
    var takesInterim = false
    private var probeDate = RunLoop.Instant.distantFuture

    enum Client {
        case unknown
        /// The stream reports its end.
        case watched
        /// It sends no more. Whether it still reads is asked again and again.
        case halfClosed
    }

    init(_ stream: ByteStream, _ server: HTTPServerCore, _ host: LoopHost) {
        (self.stream, self.server, self.host) = (stream, server, host)
        parser = RequestParser(server.options.parserLimits)
        phase = server.options.prepareConnection == nil ? .reading : .preparing
        since = host.loop.clock.now
    }

    /// Returns when the stream has ended and no handler runs. On the loop's thread.
    func serve() async { /* DOES CALLOUT */
        host.insert(self)
        // A shutdown that begins later finds the connection in the host's list.
        if server.isDraining.load(ordering: .sequentiallyConsistent) { beginDraining() }
        host.expect(deadline)
        guard await prepare() else {
            // The server closes what is open. A handshake that failed has ended the stream, which waits for the client, so that the alert arrives.
            return host.remove(self)
        }
        await withCheckedContinuation { waiter in
            ending.withLock { $0.waiter = waiter }
            stream.onEnd { [self] _, _ in streamEnded() }
            receive()
            host.expect(deadline)
        }
    }

    /// False if the connection is not to be served.
    private func prepare() async -> Bool { /* DOES CALLOUT */
        guard let prepare = server.options.prepareConnection else { return true }
        do { try await prepare(stream) } catch { return false }
        // If the loop has ended, or the time was over, so is the connection.
        guard host.loop.isCurrent, phase == .preparing else { return false }
        (phase, since) = (.reading, host.loop.clock.now)
        return true
    }

    // MARK: Requests

    private func receive() { stream.onReceive { [self] _, bytes in received(&bytes) } }

    private func received(_ bytes: inout ReceivedBytes) { /* DOES CALLOUT */
        let wasReading = phase == .reading
        while phase == .reading {  // ends: each iteration consumes bytes, changes the phase, or returns
            var consumed = 0
            let step = bytes.withUnsafeBytes { parser.next($0, consumed: &consumed) }
            bytes.consume(consumed)
            consumedCount += UInt64(consumed)
            switch step {
            case .needsMore: return bytes.isLast ? requestEndedEarly() : noteBeginning()
            case .expectsContinue: stream.send("HTTP/1.1 100 Continue\r\n\r\n")
            case .request(let head, let body, let keepsAlive):
                let request = HTTPServer.Request(head, body, peer)
                start(request, Exchange(isHead: head.line.isHead, isOld: head.line.isOld, keepsAlive: keepsAlive))
            case .refused(let refusal): refuse(refusal)
            }
        }
        // The client has half-closed. A handler that is set in the last call is called again, so that the stream does not end before the answer.
        if wasReading && phase == .responding && bytes.isLast { receive() }
        // What follows the last answer is not read.
        if phase == .closing { bytes.consume(bytes.count) }
    }

    private var peer: RunLoop.SocketAddress? {
        if case .unix = stream.peerAddress { return nil }
        return stream.peerAddress
    }

    /// A part of a request has come: its time runs.
    private func noteBeginning() {
        if hasBegun || !parser.hasBegun { return }
        (hasBegun, lateDeadline, since) = (true, nil, host.loop.clock.now)
        host.expect(deadline)
    }

    private func requestEndedEarly() { /* DOES CALLOUT */
        if parser.hasBegun { refuse(Refusal(400, "the connection ended in the middle of a request")) }
    }

    func refuse(_ refusal: Refusal) { /* DOES CALLOUT */
        phase = .closing
        stream.send(ResponseHead.refusal(refusal, isHead: parser.isHead, date: host.date))
        stream.closeAfterWriting()
    }

    private func start(_ request: HTTPServer.Request, _ exchange: Exchange) { /* DOES CALLOUT */
        phase = .responding
        (hasBegun, lateDeadline, isUsed) = (false, nil, true)
        takesInterim = !exchange.isOld && request.peer != nil
        // The next request waits, and so does the end of the input, behind which nothing could be sent.
        stream.isReading = false
        ending.withLock { $0.tasks += 1 }
        watchDate = host.loop.clock.now.advanced(by: LoopHost.watchDelay)
        host.responds(self)
        // Detached: the handler of another request may run the loop, in a mode of this connection.
        task = Task.detached(executorPreference: host.loop) { [self] in
            await respond(to: request, exchange)
            taskEnded()
        }
    }

    /// In the task of the request.
    private func respond(to request: HTTPServer.Request, _ exchange: Exchange) async { /* DOES CALLOUT */
        taskHash.store(withUnsafeCurrentTask { $0?.hashValue } ?? 0, ordering: .relaxed)
        defer { taskHash.store(0, ordering: .relaxed) }
        var response: HTTPServer.Response
        do { response = try await server.respond(request) } catch {
            // The client has gone. The error may come from the cancellation, and nobody waits for an answer.
            if isOver { return }
            server.warn("the handler of \(request.head.method) \(request.path) threw \(error)")
            response = .text("500 Internal Server Error\n", status: .internalServerError)
        }
        // If the loop has ended, so has the stream, and its state is nobody's.
        guard host.loop.isCurrent, !isOver else { return }
        let keepsAlive = await send(response, exchange, of: request)
        guard host.loop.isCurrent, !isOver else { return }
        finish(keepsAlive)
    }

    /// What is written ends the connection. From now on a connection that has ended in both directions is no sign that the client has gone.
    func beginClosing() { phase = .closing }

    /// The answer is written. The next request may come.
    private func finish(_ keepsAlive: Bool) { /* DOES CALLOUT */
        task = nil
        host.hasResponded(self)
        // If the shutdown has begun since the head was made, the connection ends as an idle one does.
        guard keepsAlive && mayContinue else {
            phase = .closing
            return stream.closeAfterWriting()
        }
        (phase, since) = (.reading, host.loop.clock.now)
        host.expect(deadline)
        stream.isReading = true
    }

    /// Whether another request may follow the answer that is made now.
    func keepsAlive(_ exchange: Exchange) -> Bool { exchange.keepsAlive && mayContinue }

    /// A shutdown answers the requests that had come when it began. Without this limit, a client that never pauses would never get a last answer.
    private var mayContinue: Bool { !isDraining || consumedCount < countBeforeDrain && hasInput }

    // MARK: The end

    /// Any thread.
    var isOver: Bool { ending.withLock { $0.isOver } }

    private func streamEnded() { /* DOES CALLOUT */
        ending.withLock { $0.isOver = true }
        host.hasResponded(self)
        task?.cancel()
        task = nil
        returnIfDone()
    }

    private func taskEnded() {
        ending.withLock { $0.tasks -= 1 }
        returnIfDone()
    }

    private func returnIfDone() {
        let waiter = ending.withLock { ending -> CheckedContinuation<Void, Never>? in
            guard ending.isOver, ending.tasks == 0 else { return nil }
            defer { ending.waiter = nil }
            return ending.waiter
        }
        guard let waiter else { return }
        // Not before: the server looks for running handlers in the list.
        host.remove(self)
        waiter.resume()
    }

    // MARK: Time

    /// When something must have happened; never while a handler runs.
    var deadline: RunLoop.Instant {
        if let lateDeadline, phase == .reading { return lateDeadline }
        let limit: Duration
        switch phase {
        case .preparing: limit = server.options.requestTimeout
        case .reading where hasBegun: return since.advanced(by: server.options.requestTimeout)
        case .reading: limit = server.options.idleTimeout
        case .responding, .closing: return .distantFuture
        }
        return since.advanced(by: isDraining ? min(limit, .seconds(1)) : limit)
    }

    func deadlineIsOver() { /* DOES CALLOUT */
        if phase == .preparing {
            phase = .closing
            // What the preparation waits for on the stream fails.
            return stream.close()
        }
        if !hasBegun, let taken = stream.lastTaken, taken > since {
            // The client was not idle: it took its last answer. If it stops to while bytes wait, the stream ends.
            (since, lateDeadline) = (taken, nil)
            return host.expect(deadline)
        }
        if lateDeadline == nil && kernelHasInput {
            let date = host.loop.clock.now.advanced(by: host.granularity)
            lateDeadline = date
            return host.expect(date)
        }
        if hasBegun { return refuse(Refusal(408, "the request took longer than \(server.options.requestTimeout)")) }
        phase = .closing
        stream.closeAfterWriting()
    }

    /// The server shuts down.
    func drain() { /* DOES CALLOUT */
        if isOver || isDraining { return }
        beginDraining()
        // A request that has begun has the time that it had.
        if hasBegun || phase == .responding || phase == .closing { return }
        since = host.loop.clock.now
        // What the client has sent is read and answered. The first request of a new connection is on its way.
        if phase == .preparing || !isUsed || hasInput { return host.expect(deadline) }
        phase = .closing
        stream.closeAfterWriting()
    }

    private func beginDraining() {
        isDraining = true
        let unread = stream.withDescriptor { cplatform_unread_bytes($0) } ?? 0
        countBeforeDrain = stream.bytesReceived + UInt64(unread)
    }

    /// Whether bytes have come that the parser has not consumed: they wait in the stream, in its TLS, or in the kernel. Over TLS they need not be
    /// the program's, so this can be true in vain. Not while `received` is called, which has what the stream has.
    private var hasInput: Bool { stream.hasUnconsumedInput || kernelHasInput }

    private var kernelHasInput: Bool {
        let count = stream.withDescriptor { descriptor in
            var byte: UInt8 = 0
            return recv(descriptor, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        }
        return count ?? 0 > 0
    }

    // MARK: The client

    /// The handler takes its time. Returns whether to ask again later.
    func watchClient() -> Bool { /* DOES CALLOUT */
        guard phase == .responding, !isOver else { return false }
        switch client {
        case .unknown:
            client = .watched
            stream.onPeerFinish { [self] _ in clientFinished() }
            return false
        case .watched: return false
        case .halfClosed:
            if ClientProbe.isGone(stream) {
                // Ends the stream, which cancels the handler.
                stream.close()
                return false
            }
            probe()
            return true
        }
    }

    /// Sends the client something that only one that has gone answers. Asks again soon.
    private func probe() { /* DOES CALLOUT */
        let now = host.loop.clock.now
        watchDate = now.advanced(by: ClientProbe.interval)
        if now < probeDate || !takesInterim || stream.bytesWaiting > 0 { return }
        probeDate = now.advanced(by: ClientProbe.period)
        stream.send(ClientProbe.bytes)
    }

    /// The client sends no more. It may have gone, or wait for the answer.
    private func clientFinished() { /* DOES CALLOUT */
        client = .halfClosed
        if isOver { return }
        ClientProbe.keepAlive(stream)
        probeDate = host.loop.clock.now.advanced(by: ClientProbe.delay)
        // Its last request may have come with the end.
        guard phase == .responding else { return }
        if ClientProbe.isGone(stream) { return stream.close() }
        probe()
        host.hasResponded(self)
        host.responds(self)
    }
}

/// What the answer must know of the request.
struct Exchange: Sendable {
    let isHead: Bool
    let isOld: Bool
    let keepsAlive: Bool
}

/// The connection has ended or failed, or its client has taken nothing for too long: nobody's mistake, and no warning.
struct ClientGone: Error {}

#endif
