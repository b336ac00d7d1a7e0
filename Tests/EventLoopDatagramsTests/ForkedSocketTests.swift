// A child of fork uses a socket of its parent, of which another thread of the parent holds the lock.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopDatagrams

@Suite(.bounded, .tags(.threads)) struct ForkedSocketTests {
    @Test func `a child that uses a socket of its parent takes no lock that a thread of the parent holds`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "parent's")
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop)
            try waitUntilAsleepAfterPass(thread.runLoop)
            let (isHeld, mayGoOn) = (Gate(), Gate())
            let holder = plainThread {
                socket.core.withState { _ in
                    isHeld.open()
                    mayGoOn.wait()
                }
            }
            isHeld.wait()
            let end = inForkedChild {
                socket.onReceive { _, _ in }
                let areZero = socket.statistics == DatagramSocket.Statistics(received: 0, sent: 0, receiveDrops: 0, sendDrops: 0)
                return areZero && !socket.isOpen && !socket.send([1], to: socket.localAddress) ? 0 : 1
            }
            mayGoOn.open()
            try holder.join()
            #expect(end.status == 0, "\(end)")
            thread.stop()
            await thread.join()
        }
    }
}

#endif
