// Rules proved here, about CFSocket:
// - Connecting in the background calls back once, with nothing or with the error; connecting with a timeout waits.
// - A stream that was never connected is silent, and is served when it is connected.
// - Sending sends everything, or says why not.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let refused = Int32(ECONNREFUSED)

/// The types of a socket, the calls, and whether the socket is valid afterwards.
private let refusals: [(CFSocketCallBackType, String, Bool)] = [
    (.connectCallBack, "connect:\(refused)", true),
    ([.connectCallBack, .readCallBack], "connect:\(refused) read", true),
    ([.connectCallBack, .dataCallBack], "connect:\(refused) data:", false),
    ([.connectCallBack, .writeCallBack], "connect:\(refused)", true),
    (.dataCallBack, "data:", false),
]

@Suite(.tags(.memory, .threads)) struct SocketConnectingTests {
    @Test(arguments: Family.allCases, [false, true])
    func `connecting in the background calls back once`(family: Family, isAddedFirst: Bool) throws {
        try onFreshThread { loop in
            let (address, info) = (freeAddress(family), SocketInfo())
            defer { forget(address) }
            let server = try listeningSocket(address, [], SocketInfo())
            let socket = try recordingSocket(family: EventLoopCFTests.family(of: address), [.readCallBack, .connectCallBack], info)
            if isAddedFirst {
                try attach(socket, to: loop)
                // Not connected: the kernel reports a hang-up, and the socket is silent. One pass finds that out.
                _ = pass()
                #expect(!pass() && info.calls.list.isEmpty)
            }
            #expect(CFSocketCopyPeerAddress(socket) == nil)
            #expect(CFSocketConnectToAddress(socket, CFSocketCopyAddress(server), -1) == .success)
            #expect(fcntl(CFSocketGetNative(socket), F_GETFL) & O_NONBLOCK == 0)
            if !isAddedFirst { try attach(socket, to: loop) }
            try waitUntilWritable(CFSocketGetNative(socket), "the connection")
            while info.calls.list.isEmpty { runUntilHandled() }
            #expect(info.calls.take() == "connect" && !pass())
            if family != .unix { #expect(CFEqual(CFSocketCopyPeerAddress(socket), CFSocketCopyAddress(server))) }
            // Never a second time.
            CFSocketEnableCallBacks(socket, CFSocketCallBackType.connectCallBack.rawValue)
            #expect(!pass())
            CFSocketInvalidate(socket)
            CFSocketInvalidate(server)
        }
    }

    @Test(arguments: refusals)
    func `a connection that is refused calls back with the error, and then for the end of the input, once`(
        types: CFSocketCallBackType, calls: String, isValid: Bool
    ) throws {
        try onFreshThread { loop in
            let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
            let socket = try recordingSocket(family: AF_INET, types, info)
            try attach(socket, to: loop)
            #expect(CFSocketConnectToAddress(socket, dead.address, -1) == .success)
            while info.calls.list.isEmpty { runUntilHandled() }
            _ = pass()
            #expect(!pass() && info.calls.description == calls && CFSocketIsValid(socket) == isValid)
            CFSocketInvalidate(socket)
        }
    }

    /// A socket whose connection was refused, and which has reported that.
    private func refusedSocket(on loop: RunLoop) throws -> (CFSocket, SocketInfo) {
        let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
        let socket = try recordingSocket(family: AF_INET, [.connectCallBack, .readCallBack], info)
        try attach(socket, to: loop)
        #expect(CFSocketConnectToAddress(socket, dead.address, -1) == .success)
        while info.calls.list.isEmpty { runUntilHandled() }
        _ = pass()
        #expect(!pass() && info.calls.take() == "connect:\(refused) read")
        return (socket, info)
    }

    @Test func `a read callback that is enabled again after a refused connection comes once`() throws {
        try onFreshThread { loop in
            let (socket, info) = try refusedSocket(on: loop)
            for _ in 0..<2 {
                CFSocketEnableCallBacks(socket, CFSocketCallBackType.readCallBack.rawValue)
                for _ in 0..<4 { _ = pass() }
                #expect(info.calls.take() == "read")
            }
            CFSocketInvalidate(socket)
        }
    }

    @Test func `a socket that the program connects by itself after a refused connection is served`() throws {
        try onFreshThread { loop in
            let server = try listeningSocket(freeAddress(.ipv4), [], SocketInfo())
            let (socket, info) = try refusedSocket(on: loop)
            // Linux reports the failed attempt once more.
            let address: CFData = CFSocketCopyAddress(server)
            let native = CFSocketGetNative(socket)
            if connectNative(native, address) != 0 { try #require(connectNative(native, address) == 0) }
            let peer = accept(CFSocketGetNative(server), nil, nil)
            try #require(peer >= 0)
            CFSocketEnableCallBacks(socket, CFSocketCallBackType.readCallBack.rawValue)
            for text in ["first", "second"] {
                try #require(send(peer, text, text.utf8.count, 0) == text.utf8.count)
                while info.calls.list.isEmpty { runUntilHandled() }
                #expect(info.calls.take().hasPrefix("read") && received(native) == text)
                for _ in 0..<4 { _ = pass() }
                #expect(info.calls.list.isEmpty)
            }
            close(peer)
            CFSocketInvalidate(socket)
            CFSocketInvalidate(server)
        }
    }

    @Test func `errors that are left are in the socket, and not in the connect callback`() throws {
        try onFreshThread { loop in
            let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
            let socket = try recordingSocket(family: AF_INET, .connectCallBack, info)
            CFSocketSetSocketFlags(socket, kCFSocketLeaveErrors | kCFSocketCloseOnInvalidate)
            #expect(CFSocketConnectToAddress(socket, dead.address, -1) == .success)
            try attach(socket, to: loop)
            while info.calls.list.isEmpty { runUntilHandled() }
            #expect(info.calls.description == "connect")
            var (error, size) = (Int32(0), socklen_t(4))
            #expect(getsockopt(CFSocketGetNative(socket), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == refused)
            CFSocketInvalidate(socket)
        }
    }

    @Test func `after a refused connection whose error is left, a read callback comes once`() throws {
        try onFreshThread { loop in
            let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
            let socket = try recordingSocket(family: AF_INET, [.connectCallBack, .readCallBack], info)
            CFSocketSetSocketFlags(socket, CFSocketGetSocketFlags(socket) | kCFSocketLeaveErrors)
            try attach(socket, to: loop)
            #expect(CFSocketConnectToAddress(socket, dead.address, -1) == .success)
            while info.calls.list.isEmpty { runUntilHandled() }
            _ = pass()
            #expect(!pass() && info.calls.description == "connect read")
            CFSocketInvalidate(socket)
        }
    }

    @Test(arguments: [false, true])
    func `a connection whose peer has sent and closed already is no failed one, and read callbacks go on`(leavesErrors: Bool) throws {
        try onFreshThread { loop in
            let (address, info) = (freeAddress(.unix), SocketInfo())
            defer { forget(address) }
            let server = try listeningSocket(address, [], SocketInfo())
            let socket = try recordingSocket(family: AF_UNIX, [.connectCallBack, .readCallBack], info)
            if leavesErrors { CFSocketSetSocketFlags(socket, CFSocketGetSocketFlags(socket) | kCFSocketLeaveErrors) }
            #expect(CFSocketConnectToAddress(socket, CFSocketCopyAddress(server), -1) == .success)
            let peer = accept(CFSocketGetNative(server), nil, nil)
            try #require(peer >= 0 && send(peer, "x", 1, 0) == 1)
            close(peer)
            try attach(socket, to: loop)
            for _ in 0..<4 { _ = pass() }
            #expect(info.calls.list.prefix(3) == ["connect", "read", "read"])
            CFSocketInvalidate(socket)
            CFSocketInvalidate(server)
        }
    }

    @Test(arguments: Family.allCases, [0, 1_200.0])
    func `connecting with a timeout waits for the outcome, and a refused socket can connect again`(family: Family, timeout: Double) throws {
        let address = freeAddress(family)
        defer { forget(address) }
        let socket = try recordingSocket(family: EventLoopCFTests.family(of: address), .connectCallBack, SocketInfo())
        let dead = try DeadAddress(family)
        #expect(CFSocketConnectToAddress(socket, dead.address, timeout) == .error)
        let server = try listeningSocket(address, [], SocketInfo())
        #expect(CFSocketConnectToAddress(socket, CFSocketCopyAddress(server), timeout) == .success)
        #expect(CFSocketSendData(socket, nil, data("hello"), timeout) == .success)
        CFSocketInvalidate(socket)
        #expect(CFSocketConnectToAddress(socket, CFSocketCopyAddress(server), timeout) == .error)
        CFSocketInvalidate(server)
    }

    @Test func `a socket that was connected with a timeout calls back too, and one that was refused does not`() throws {
        try onFreshThread { loop in
            let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
            let server = try listeningSocket(freeAddress(.ipv4), [], SocketInfo())
            let socket = try recordingSocket(family: AF_INET, [.connectCallBack, .writeCallBack, .readCallBack], info)
            try attach(socket, to: loop)
            #expect(CFSocketConnectToAddress(socket, dead.address, 1_200) == .error)
            _ = pass()
            #expect(!pass() && info.calls.list.isEmpty)
            #expect(CFSocketConnectToAddress(socket, CFSocketCopyAddress(server), 1_200) == .success)
            #expect(pass() && info.calls.description == "connect write")
            CFSocketInvalidate(socket)
            CFSocketInvalidate(server)
        }
    }

    #if os(Linux)
    @Test func `an attempt without an outcome times out`() throws {
        // Linux drops the first segment of a connection for which the listener's queue has no room.
        let info = SocketInfo()
        let server = try listeningSocket(freeAddress(.ipv4), [], info)
        #expect(listen(CFSocketGetNative(server), 0) == 0)
        let first = connectedSocket(CFSocketCopyAddress(server))
        defer { close(first) }
        try waitUntilReadable(CFSocketGetNative(server), "the connection is in the queue")
        let socket = try recordingSocket(family: AF_INET, .connectCallBack, info)
        #expect(CFSocketConnectToAddress(socket, CFSocketCopyAddress(server), 0.02) == .timeout)
        CFSocketInvalidate(socket)
        CFSocketInvalidate(server)
    }
    #endif

    @Test func `a signature makes a connected socket, or none`() throws {
        let info = SocketInfo()
        let server = try listeningSocket(freeAddress(.ipv6), [], info)
        let address: CFData = CFSocketCopyAddress(server)
        var signature = CFSocketSignature(protocolFamily: AF_INET6, socketType: streamType, protocol: 0, address: .passUnretained(address))
        let socket = CFSocketCreateConnectedToSocketSignature(nil, &signature, 0, nil, nil, 1_200)
        #expect(CFSocketIsValid(socket) && CFEqual(CFSocketCopyPeerAddress(socket), address))
        #expect(CFSocketCreateWithSocketSignature(nil, &signature, 0, nil, nil) == nil)
        CFSocketInvalidate(socket)
        CFSocketInvalidate(server)
        #expect(CFSocketCreateConnectedToSocketSignature(nil, &signature, 0, nil, nil, 1_200) == nil)
        signature.address = nil
        #expect(CFSocketCreateWithSocketSignature(nil, &signature, 0, nil, nil) == nil)
        signature.socketType = 99
        #expect(CFSocketCreateWithSocketSignature(nil, &signature, 0, nil, nil) == nil)
    }

    // MARK: Sending

    @Test func `sending waits for room, sends everything, and keeps the data of two threads apart`() throws {
        let pair = SocketPair()
        let socket = recordingSocket(pair.native, [], SocketInfo())
        let size = 1_000_000
        let senders = ["a", "b"].map { letter in
            plainThread { CFSocketSendData(socket, nil, data(String(repeating: letter, count: size)), 0) }
        }
        var received: [UInt8] = []
        while received.count < 2 * size { received += try #require(try readPiece(pair.peer, "the data")) }
        for sender in senders { #expect(try sender.join() == .success) }
        #expect(Set(received[..<size]).count == 1 && Set(received[size...]).count == 1)
        CFSocketInvalidate(socket)
        close(pair.peer)
    }

    @Test(arguments: [1_200.0, 1e10, Double.infinity])
    func `a positive time-out waits for room, however long it is, also with a non-blocking socket`(timeout: Double) throws {
        let (pair, size) = (SocketPair(), 1_000_000)
        #expect(fcntl(pair.native, F_SETFL, O_NONBLOCK) == 0)
        let socket = recordingSocket(pair.native, [], SocketInfo())
        let sender = plainThread { () -> CFSocketError in
            // The end of the socket ends the reading below.
            defer { CFSocketInvalidate(socket) }
            return CFSocketSendData(socket, nil, data(String(repeating: "x", count: size)), timeout)
        }
        let received = try readToEnd(pair.peer, "the socket is closed")
        #expect(try sender.join() == .success)
        #expect(received.utf8.count == size)
        close(pair.peer)
    }

    @Test func `sending reports that the time is over, that the peer is gone, and that the socket is invalid`() throws {
        let pair = SocketPair()
        let socket = recordingSocket(pair.native, [], SocketInfo())
        #expect(CFSocketSendData(socket, nil, data(String(repeating: "x", count: 4_000_000)), 0.01) == .timeout)
        #expect(fcntl(pair.native, F_SETFL, O_NONBLOCK) == 0)
        #expect(CFSocketSendData(socket, nil, data("x"), 0) == .error)
        close(pair.peer)
        #expect(CFSocketSendData(socket, nil, data("x"), 0) == .error)
        CFSocketInvalidate(socket)
        #expect(CFSocketSendData(socket, nil, data("x"), 0) == .error)
    }
}
