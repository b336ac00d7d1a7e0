// Rule proved here (StreamCore+PeerFinish.swift): a task that waits for the peer's end learns which side has ended the stream first.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

@Suite(.bounded) struct PeerFinishTaskTests {
    @Test(arguments: [true, false]) func `the peer's end cancels nothing after this side has ended the stream`(isFirst: Bool) async throws {
        try await withTestLoop { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            let core = stream.core
            let hasFinished = Task { await core.waitForPeerFinish() }
            let isCancelled = Task {
                try await stream.withCancellationOnPeerFinish {
                    try await suspendUntil("the end") { core.withLock { core.locked.phase == .closed } }
                    return Task.isCancelled
                }
            }
            try await suspendUntil("both wait") { core.withLock { core.locked.peerFinish.waiters.count == 2 } }
            if isFirst {
                pair.closePeer()
                #expect(await hasFinished.value == true)
                stream.close()
            } else {
                // The loop is busy until everything has come. More than one read, so the peer's end is known before it is read.
                let (entered, go) = (Gate(), Gate())
                loop.perform {
                    entered.open()
                    go.wait()
                }
                try await entered.waitInTask()
                stream.closeAfterWriting()
                _ = pair.sendUntilFull()
                pair.closePeer()
                go.open()
                #expect(await hasFinished.value == false)
                #expect(try await isCancelled.value == false)
            }
            isCancelled.cancel()
        }
    }
}
