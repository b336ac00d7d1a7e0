// Rules proved here, about who gets the outcome of an attempt to connect a CFSocket:
// - An attempt calls back for its own outcome, also if the kernel reported the unconnected socket just before it began.
// - While a thread waits in CFSocketConnectToAddress, no loop calls back or takes the error.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoopCF

@Suite(.bounded, .tags(.threads)) struct SocketOutcomeTests {
    @Test func `an attempt that begins after the kernel has reported the unconnected socket does not call back before its outcome`() throws
    {
        try onFreshThread { loop in
            let info = SocketInfo()
            let server = try listeningSocket(freeAddress(.ipv4), [], SocketInfo())
            // Linux drops the first segment of a connection for which the listener's queue has no room, so there is no outcome yet.
            #expect(listen(CFSocketGetNative(server), 0) == 0)
            let address: CFData = CFSocketCopyAddress(server)
            let first = connectedSocket(address)
            defer { close(first) }
            try waitUntilReadable(CFSocketGetNative(server), "the connection is in the queue")
            let socket = try recordingSocket(family: AF_INET, [.connectCallBack, .writeCallBack], info)
            loop.addIdleSource()
            loop.atFirst(.beforeWaiting) { do { try attach(socket, to: loop) } catch { Issue.record(error) } }
            // The hang-up of the unconnected socket has ended the wait, and nobody was called for it.
            loop.atFirst(.afterWaiting) {
                #expect(CFSocketConnectToAddress(socket, address, -1) == .success)
                CFRunLoopStop(loop)
            }
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .stopped)
            #expect(info.calls.list.isEmpty && CFSocketIsValid(socket))
            CFSocketInvalidate(socket)
            CFSocketInvalidate(server)
        }
    }

    /// 1. A thread connects the socket, and the attempt is refused.
    /// 2. Before the thread takes the error, a loop serves what the kernel had reported of the socket.
    @Test(arguments: [CFSocketCallBackType.readCallBack, .dataCallBack])
    func `a loop leaves the error of a refused attempt to the thread that waits for it`(types: CFSocketCallBackType) throws {
        let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
        let socket = try recordingSocket(family: AF_INET, types.union(.writeCallBack), info)
        let native = CFSocketGetNative(socket)
        socket.state.withLock { state in
            state.waitingConnects.begin()
            (state.isReadArmed, state.isWriteArmed) = (true, true)
        }
        #expect(fcntl(native, F_SETFL, O_NONBLOCK) == 0)
        #expect(connectNative(native, dead.address) != 0)
        try waitUntilWritable(native, "the attempt is refused")
        socket.serve([.read, .write])
        #expect(info.calls.list.isEmpty && CFSocketIsValid(socket))
        #expect(SocketCalls.takeError(native) == ECONNREFUSED)
        socket.state.withLock { $0.waitingConnects.end() }
        CFSocketInvalidate(socket)
    }
}

#endif
