// The rule of RepeatedCallTests, for the handlers of datagram sockets.

import EventLoop
import EventLoopDatagrams
import EventLoopTestSupport
import Testing

@Suite(.bounded, .serialized) struct RepeatedDatagramCallTests {
    enum Kind: String, CaseIterable, Codable, Sendable { case ipv4, unix }

    @Test(arguments: Kind.allCases)
    func `a later call goes through no more functions than an earlier one, and leaves no memory behind`(kind: Kind) async {
        // No other test allocates memory in this process.
        await #expect(processExitsWith: .success) { [kind] in
            let calls = RepeatedCalls()
            let directory = makeTemporaryDirectory()
            defer { removeFlatDirectory(directory) }
            try onFreshThread { loop in
                let address = kind == .ipv4 ? RunLoop.SocketAddress.anyIPv4 : .unix(path: directory + "/socket")
                let socket = try DatagramSocket(boundTo: address, on: loop)
                // It sends to itself.
                socket.onReceive { socket, datagram in
                    calls.note()
                    if calls.areEnough { loop.stop() } else { socket.send(datagram.bytes, to: datagram.peer) }
                }
                socket.send([1], to: socket.localAddress)
                _ = loop.run(for: patience)
                socket.close()
            }
            calls.expectNoGrowth()
        }
    }
}
