// Answers: whole ones, files and sequences.

#if HTTP

internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams
internal import HTTPTypes
import Synchronization

extension HTTPConnection {
    /// Smaller bodies are copied behind their heads, and go out in one call with them.
    private static var joinLimit: Int { 16_384 }

    /// Sends the answer. Returns whether another request may follow. In the request's task, on the loop's thread.
    func send(_ response: HTTPServer.Response, _ exchange: Exchange, of request: HTTPServer.Request) async -> Bool { /* DOES CALLOUT */
        do {
            return try await sendChecked(response, exchange)
        } catch let error as UnsendableResponse {
            // Nothing of it was sent.
            server.warn("the answer to \(request.head.method) \(request.path) cannot be sent: \(error)")
            let failure = HTTPServer.Response.text("500 Internal Server Error\n", status: .internalServerError)
            return (try? await sendChecked(failure, exchange)) ?? false
        } catch is ClientGone {
            stream.close()
            return false
        } catch {
            // A part of it was sent: only the end of the connection says that the rest is missing.
            if !isOver {
                server.warn("the answer to \(request.head.method) \(request.path) ends early: \(error)")
            }
            stream.close()
            return false
        }
    }

    private func sendChecked(_ response: HTTPServer.Response, _ exchange: Exchange) async throws -> Bool { /* DOES CALLOUT */
        let status = response.head.status
        if status.code < 200 {
            throw UnsendableResponse(description: "a handler answers with a final status, from 200 on, not with \(status.code)")
        }
        if status.code == 204 || status.code == 304 { return try await sendWhole(response.head, [], .none, exchange) }
        // RFC 9110, 15.3.6: it has no content, and says so.
        if status.code == 205 { return try await sendWhole(response.head, [], .length(0), exchange) }
        switch response.body {
        case .bytes(let bytes): return try await sendWhole(response.head, bytes, .length(bytes.count), exchange)
        case .file(let path): return try await sendFile(path, response.head, exchange)
        case .sequence(let sequence): return try await sendSequence(sequence, response.head, exchange)
        }
    }

    /// The head's bytes, and whether another request may follow.
    private func makeHead(
        _ head: HTTPResponse, _ framing: BodyFraming, _ exchange: Exchange, reserving count: Int = 0
    ) throws(UnsendableResponse) -> (bytes: [UInt8], keepsAlive: Bool) {
        var keepsAlive = keepsAlive(exchange)
        if case .end = framing { keepsAlive = false }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(256 + count)
        let connection: StaticString? = keepsAlive ? exchange.isOld ? "keep-alive" : nil : "close"
        try ResponseHead.append(head, framing, connection: connection, date: host.date, to: &bytes)
        takesInterim = false
        return (bytes, keepsAlive)
    }

    private func sendWhole(
        _ head: HTTPResponse, _ body: [UInt8], _ framing: BodyFraming, _ exchange: Exchange
    ) async throws -> Bool { /* DOES CALLOUT */
        let isJoined = !exchange.isHead && body.count <= Self.joinLimit
        var (bytes, keepsAlive) = try makeHead(head, framing, exchange, reserving: isJoined ? body.count : 0)
        if isJoined { bytes.append(contentsOf: body) }
        try await write(bytes)
        if !isJoined && !exchange.isHead { try await write(body) }
        return keepsAlive
    }

    /// Waits while the client does not take what was written before. If it fails, the client has gone.
    private func write(_ bytes: [UInt8]) async throws(ClientGone) { /* DOES CALLOUT */
        do { try await stream.write(bytes) } catch { throw ClientGone() }
    }

    // MARK: Sequences

    private func sendSequence(
        _ sequence: any AsyncSequence<[UInt8], any Error> & Sendable, _ head: HTTPResponse, _ exchange: Exchange
    ) async throws -> Bool { /* DOES CALLOUT */
        let (bytes, keepsAlive) = try makeHead(head, exchange.isOld ? .end : .chunks, exchange)
        try await write(bytes)
        if exchange.isHead { return keepsAlive }
        if exchange.isOld { setResetsAtEnd(true) }
        var turn = Turn()
        for try await element in sequence {
            if !element.isEmpty {
                if exchange.isOld { try await write(element) } else { try await writeChunk(element) }
            }
            await turn.spend(element.count)
        }
        // A sequence that ends because its task was cancelled is not whole.
        try Task.checkCancellation()
        if exchange.isOld {
            beginClosing()
            do { try await stream.finishWriting() } catch { throw ClientGone() }
            setResetsAtEnd(false)
        } else {
            try await write(Array("0\r\n\r\n".utf8))
        }
        return keepsAlive
    }

    /// To a client of HTTP/1.0 the end of the connection is that of the body. So until the body is whole, each end resets the connection. No-op on
    /// Unix sockets.
    private func setResetsAtEnd(_ resets: Bool) {
        _ = stream.withDescriptor { descriptor in
            var setting = linger(l_onoff: resets ? 1 : 0, l_linger: 0)
            return setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &setting, socklen_t(MemoryLayout<linger>.size))
        }
    }

    private func writeChunk(_ bytes: [UInt8]) async throws { /* DOES CALLOUT */
        let size = String(bytes.count, radix: 16)
        if bytes.count > Self.joinLimit {
            try await write(Array((size + "\r\n").utf8))
            try await write(bytes)
            return try await write(Array("\r\n".utf8))
        }
        var chunk: [UInt8] = []
        chunk.reserveCapacity(bytes.count + 16)
        chunk.append(contentsOf: size.utf8)
        chunk.append("\r\n")
        chunk.append(contentsOf: bytes)
        chunk.append("\r\n")
        try await write(chunk)
    }

    // MARK: Files

    private func sendFile(_ path: String, _ head: HTTPResponse, _ exchange: Exchange) async throws -> Bool { /* DOES CALLOUT */
        let file: OpenFile
        do throws(FileError) {
            file = try OpenFile(path)
        } catch {
            switch error {
            case .missing: return try await sendChecked(.text("404 Not Found\n", status: .notFound), exchange)
            case .system: throw UnsendableResponse(description: "\(path): \(error)")
            }
        }
        var head = head
        if !head.headerFields.contains(.contentType), let type = OpenFile.contentType(of: path) { head.headerFields[.contentType] = type }
        if exchange.isHead || file.size <= Self.joinLimit {
            // Before the head says that all is well.
            let body: [UInt8]
            do { body = try exchange.isHead ? [] : file.read(upTo: file.size, from: 0) } catch {
                throw UnsendableResponse(description: "\(path): \(error)")
            }
            return try await sendWhole(head, body, .length(file.size), exchange)
        }
        let (bytes, keepsAlive) = try makeHead(head, .length(file.size), exchange)
        // At once, with what waits before it: what a task writes waits for the end of the pass, and the kernel sends the file only behind everything else.
        stream.send(bytes)
        var offset = try await transfer(file)
        while offset < file.size {  // ends: each iteration sends a part of what is left
            let part = try file.read(upTo: min(OpenFile.pieceSize, file.size - offset), from: offset)
            offset += part.count
            // Waits for the client, so that no more than one piece is in memory beside what the stream holds.
            try await write(part)
            await Task.yield()
        }
        return keepsAlive
    }

    /// Has the kernel send the file, if nothing must see its bytes. Returns how many were sent.
    private func transfer(_ file: OpenFile) async throws -> Int { /* DOES CALLOUT */
        #if os(Linux)
        guard server.options.prepareConnection == nil, let transfer = FileTransfer(stream, mode: host.mode) else { return 0 }
        let count = try await transfer.send(file, patience: server.options.idleTimeout)
        #if DEBUG
        server.testsOnlyKernelBytes.add(count, ordering: .relaxed)
        #endif
        return count
        #else
        return 0
        #endif
    }
}

/// How much of a sequence goes out before the loop serves others: one that is always ready would keep it for itself.
private struct Turn {
    private var bytes = 0
    private var elements = 0

    mutating func spend(_ count: Int) async {
        (bytes, elements) = (bytes + count, elements + 1)
        if bytes < 65_536 && elements < 32 { return }
        self = Turn()
        await Task.yield()
    }
}

#endif
