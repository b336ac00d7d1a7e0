// Rules proved here (docs/http.md, Responses): an answer that is always ready does not keep its loop from the other connections.

import EventLoop
import EventLoopStreams
import HTTPTypes
import TestSupport
import Testing

@testable import EventLoopHTTP

/// Is always ready, and ends when the test says so, or after `count` elements.
private struct ReadyElements: AsyncSequence, AsyncIteratorProtocol, Sendable {
    let element: [UInt8]
    var count = Int.max
    var end = Box(false)

    func makeAsyncIterator() -> Self { self }
    mutating func next() async throws -> [UInt8]? {
        if end.value || count == 0 { return nil }
        count -= 1
        return element
    }
}

@Suite(.bounded) struct FairnessTests {
    @Test func `elements without bytes do not keep a loop from its other connections`() async throws {
        let (end, begun) = (Box(false), Gate())
        let respond: @Sendable (Request) async throws -> Response = { request in
            if request.path != "/ready" { return .text("served") }
            begun.open()
            return Response(body: .sequence(ReadyElements(element: [], end: end)))
        }
        try await withServer(respond: respond) { server in
            defer { end.value = true }
            let (ready, other) = (try Client(server), try Client(server))
            try ready.send(get("/ready"))
            begun.wait()
            #expect(try other.ask(get()).text == "served")
        }
    }

    /// The copied file and the sequence have four pieces each, and the kernel may take all of them at once.
    @Test(arguments: ["/file", "/sequence"])
    func `others are served between the pieces of an answer`(path: String) async throws {
        let (stream, isOver, seen) = (Box<ByteStream?>(nil), Box(false), Locked<Set<UInt64>>([]))
        var options = HTTPServer.Options()
        options.prepareConnection = { stream.value = $0 }
        try await withFolder { folder in
            makeFile(folder + "/file", size: 262_144)
            let respond: @Sendable (Request) async throws -> Response = { request in
                if let stream = stream.value {
                    Task(executorPreference: stream.loop) {
                        while !isOver.value {  // ends: with the answer
                            seen.withLock { _ = $0.insert(stream.bytesSent + UInt64(stream.bytesWaiting)) }
                            await Task.yield()
                        }
                    }
                }
                if request.path == "/file" { return Response(body: .file(path: folder + "/file")) }
                return Response(body: .sequence(ReadyElements(element: [UInt8](repeating: 1, count: 8_192), count: 32)))
            }
            try await withServer(options: options, respond: respond) { server in
                defer { isOver.value = true }
                let answer = try Client(server).ask(get(path))
                #expect(answer.body.count == 262_144)
            }
            stream.value = nil
            for piece in 1..<4 as Range<UInt64> {
                #expect(seen.withLock { $0 }.contains { $0 > piece * 65_536 - 8_192 && $0 < (piece + 1) * 65_536 })
            }
        }
    }
}
