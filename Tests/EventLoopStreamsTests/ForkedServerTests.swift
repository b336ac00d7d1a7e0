// fork, and servers: a child leaves its parent's server and its clients alone.

#if os(Linux)

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded, .serialized) struct ForkedServerTests {
    enum ServerUse: String, CaseIterable, Sendable, Codable { case lastRelease, shutdown, question, nothing }

    @Test(arguments: ServerUse.allCases)
    func `a child that ends its use of a server, or asks it, does not end the parent's`(use: ServerUse) async {
        await #expect(processExitsWith: .success) { [use] in
            let thread = try RunLoopThread(name: "parent's")
            let options = ByteStream.Options()
            let box = Box<StreamServer?>(
                try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.runLoop], options: options) { stream in
                    try? await stream.write("hi")
                })
            let address = box.value!.localAddress
            let asked = Box<ByteStream?>(nil)
            let (native, peer) = connectedSockets()
            defer { close(peer) }
            asked.value = try ByteStream(adopting: native, on: thread.runLoop)
            let hasFinished = Box(false)
            asked.value?.onPeerFinish { _ in hasFinished.value = true }
            try waitUntilAsleepAfterPass(thread.runLoop)
            for _ in 0..<3 {
                let end = oneForkedChild {
                    switch use {
                    case .lastRelease:
                        box.value = nil
                        asked.value = nil
                    case .shutdown:
                        guard let thread = try? RunLoopThread(name: "child's") else { return 1 }
                        let isOver = Gate()
                        Task(executorPreference: thread.runLoop) {
                            await box.value?.shutdown(grace: .zero)
                            isOver.open()
                        }
                        isOver.wait()
                    case .question:
                        _ = (box.value?.isAccepting, box.value?.connections, asked.value?.peerHasFinished, asked.value?.peerCredentials)
                    case .nothing: break
                    }
                    return 0
                }
                #expect(end.status == 0, "\(use): \(end)")
            }
            #expect(!hasFinished.value && box.value?.isAccepting == true)
            let client = try await ByteStream.connect(to: address, on: thread.runLoop)
            #expect(try await client.readAll() == "hi")
            shutdown(peer, Int32(SHUT_WR))
            try await suspendUntil("the parent learns of the end") { hasFinished.value }
            client.close()
            asked.value?.close()
            await box.value?.shutdown(grace: .zero)
            thread.stop()
            await thread.join()
        }
    }
}
#endif
