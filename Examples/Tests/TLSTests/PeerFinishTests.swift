// Rules proved here (docs/streams.md, "The client has gone"), over TLS:
// - The peer's end is known by its close_notify and by an end without one, while reading is paused, and with unread bytes.
// - A task that computes for a peer that has gone is cancelled.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct PeerFinishTests {
    private let setup = Setup()

    enum Ending: CaseIterable, Sendable {
        case closeNotify, close, cut

        func end(_ peer: ByteStream) async throws {
            switch self {
            case .closeNotify: try await peer.finishWriting()
            case .close: peer.closeAfterWriting()
            // The socket ends, and TLS has not said so.
            case .cut: peer.withDescriptor { descriptor in _ = shutdown(descriptor, Int32(SHUT_WR)) }
            }
        }
    }

    @Test(arguments: Ending.allCases, [true, false])
    func `the end of a peer is known, with unread bytes`(ending: Ending, isPaused: Bool) async throws {
        try await withStreams(setup.client(), setup.server()) { client, server in
            let calls = Box(0)
            if isPaused {
                server.onReceive { _, _ in }
                server.isReading = false
            }
            server.onPeerFinish { _ in calls.increment() }
            try await client.write("unread")
            #expect(!server.peerHasFinished && calls.value == 0)
            try await ending.end(client)
            try await suspendUntil("the end is known") { server.peerHasFinished && calls.value == 1 }
            // The bytes before it are still there.
            if !isPaused { #expect(try await server.read(exactly: 6) == Array("unread".utf8)) }
            #expect(calls.value == 1)
        }
    }

    @Test(arguments: Ending.allCases)
    func `a task that computes is cancelled when its client goes`(ending: Ending) async throws {
        try await withStreams(setup.client(), setup.server()) { client, server in
            let hasBegun = Box(false)
            async let result = server.withCancellationOnPeerFinish {
                hasBegun.value = true
                await suspendUntilCancelled()
                return Task.isCancelled
            }
            try await suspendUntil("the task computes") { hasBegun.value }
            try await ending.end(client)
            #expect(try await result)
        }
    }
}
