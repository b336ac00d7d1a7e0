// Rules proved here, about CFSocket:
// - Each callback type comes when the socket is ready for it, with its data and its address.
// - Read, accept and data callbacks come again by themselves, write callbacks do not; the flags change that.
// - Disabled callbacks do not come. The first mode that the source joins enables all.
// - A callback that is in progress does not begin again in a nested run, except for data and connections, of which there may be more.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory)) struct SocketTests {
    @Test func `constants have the values of the C header`() {
        let types: [CFSocketCallBackType] = [[], .readCallBack, .acceptCallBack, .dataCallBack, .connectCallBack, .writeCallBack]
        #expect(types.map(\.rawValue) == [0, 1, 2, 3, 4, 8])
        #expect([CFSocketError.success, .error, .timeout].map(\.rawValue) == [0, -1, -2])
        #expect(kCFSocketAutomaticallyReenableReadCallBack == 1 && kCFSocketAutomaticallyReenableAcceptCallBack == 2)
        #expect(kCFSocketAutomaticallyReenableDataCallBack == 3 && kCFSocketAutomaticallyReenableWriteCallBack == 8)
        #expect(kCFSocketLeaveErrors == 64 && kCFSocketCloseOnInvalidate == 128)
    }

    @Test(arguments: [(0, 128), (1, 129), (2, 130), (3, 131), (4, 128), (5, 129), (8, 128), (12, 128), (15, 131), (0xF3, 0xF3)])
    func `the flags of a new socket enable its read, accept or data callback again, and close`(types: UInt, flags: UInt) {
        let pair = SocketPair()
        defer { close(pair.peer) }
        let socket = recordingSocket(pair.native, CFSocketCallBackType(rawValue: types), SocketInfo())
        #expect(CFSocketGetSocketFlags(socket) == flags)
        CFSocketSetSocketFlags(socket, 0xFFFF)
        #expect(CFSocketGetSocketFlags(socket) == 0xFF)
    }

    @Test func `a read callback comes until the data are read, or only once without its flag`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, .readCallBack, info)
            try attach(socket, to: loop)
            #expect(!pass())
            pair.write()
            #expect(pass() && pass())
            #expect(received(pair.native) == "x" && !pass())
            #expect(info.calls.take() == "read read")
            CFSocketSetSocketFlags(socket, kCFSocketCloseOnInvalidate)
            pair.write()
            #expect(pass() && !pass())
            CFSocketEnableCallBacks(socket, kCFSocketAutomaticallyReenableReadCallBack)
            #expect(pass() && !pass())
            #expect(info.calls.take() == "read read")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `a data callback gets what was received and the peer's address, and at the end no bytes, after which the socket is invalid`()
        throws
    {
        try onFreshThread { loop in
            let (listener, info) = (SocketInfo(), SocketInfo())
            let server = try listeningSocket(freeAddress(.ipv4), .acceptCallBack, listener)
            let client = connectedSocket(CFSocketCopyAddress(server))
            try attach(server, to: loop)
            runUntilHandled()
            let socket = recordingSocket(try #require(listener.connections.value.first), .dataCallBack, info)
            listener.connections.value = []
            let source = try attach(socket, to: loop)
            #expect(send(client, "hello", 5, 0) == 5)
            runUntilHandled()
            #expect(info.calls.take() == "data:hello")
            #expect(CFEqual(info.addresses.value.last, CFSocketCopyPeerAddress(socket)))
            #expect(CFEqual(info.addresses.value.last, listener.addresses.value.first))
            // A half-close: the socket can still send.
            info.onCall.value = { socket, _ in #expect(CFSocketSendData(socket, nil, data("bye"), 0) == .success) }
            #expect(shutdown(client, Int32(SHUT_WR)) == 0)
            runUntilHandled()
            #expect(info.calls.take() == "data:")
            #expect(!CFSocketIsValid(socket) && !CFRunLoopSourceIsValid(source) && info.releases.value == 1)
            #expect(try readToEnd(client, "the server closes") == "bye")
            close(client)
            CFSocketInvalidate(server)
        }
    }

    @Test(arguments: Family.allCases)
    func `an accept callback gets one connection and the peer's address`(family: Family) throws {
        try onFreshThread { loop in
            let (address, info) = (freeAddress(family), SocketInfo())
            defer { forget(address) }
            let socket = try listeningSocket(address, .acceptCallBack, info)
            let clients = (0..<3).map { _ in connectedSocket(CFSocketCopyAddress(socket)) }
            defer { for client in clients { close(client) } }
            try attach(socket, to: loop)
            for _ in 0..<3 { runUntilHandled() }
            #expect(info.calls.take() == "accept accept accept" && !pass())
            #expect(info.addresses.value.count == 3)
            if family != .unix {
                for (client, peer) in zip(clients, info.addresses.value) {
                    let object = recordingSocket(client, [], SocketInfo())
                    CFSocketSetSocketFlags(object, 0)
                    #expect(CFEqual(CFSocketCopyAddress(object), peer))
                }
            }
            for connection in info.connections.value {
                #expect(fcntl(connection, F_GETFD) & FD_CLOEXEC != 0 && fcntl(connection, F_GETFL) & O_NONBLOCK == 0)
            }
            CFSocketInvalidate(socket)
        }
    }

    @Test func `a listening socket with a read callback accepts in the callback`() throws {
        try onFreshThread { loop in
            let info = SocketInfo()
            let socket = try listeningSocket(freeAddress(.ipv4), .readCallBack, info)
            let client = connectedSocket(CFSocketCopyAddress(socket))
            info.onCall.value = { socket, _ in close(accept(CFSocketGetNative(socket), nil, nil)) }
            try attach(socket, to: loop)
            runUntilHandled()
            #expect(try readToEnd(client, "the callback closes") == "")
            #expect(info.calls.description == "read" && !pass())
            close(client)
            CFSocketInvalidate(socket)
        }
    }

    @Test func `accept callbacks without their flag come once each time that they are enabled, and lose no connection`() throws {
        try onFreshThread { loop in
            let (address, info) = (freeAddress(.unix), SocketInfo())
            defer { forget(address) }
            let socket = try listeningSocket(address, .acceptCallBack, info)
            CFSocketSetSocketFlags(socket, kCFSocketCloseOnInvalidate)
            let clients = (0..<3).map { _ in connectedSocket(address) }
            defer { for client in clients { close(client) } }
            try attach(socket, to: loop)
            #expect(pass() && !pass())
            for _ in 0..<2 {
                CFSocketEnableCallBacks(socket, kCFSocketAutomaticallyReenableAcceptCallBack)
                #expect(pass() && !pass())
            }
            #expect(info.calls.description == "accept accept accept")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `datagrams come one by one, with their sender, and an empty one is not the end`() throws {
        try onFreshThread { loop in
            let (info, senderInfo) = (SocketInfo(), SocketInfo())
            let socket = try recordingSocket(family: AF_INET, type: datagramType, .dataCallBack, info)
            #expect(CFSocketSetAddress(socket, freeAddress(.ipv4)) == .success)
            let sender = try recordingSocket(family: AF_INET, type: datagramType, [], senderInfo)
            #expect(CFSocketSetAddress(sender, freeAddress(.ipv4)) == .success)
            try attach(socket, to: loop)
            for text in ["one", "", "two"] {
                #expect(CFSocketSendData(sender, CFSocketCopyAddress(socket), data(text), 0) == .success)
                runUntilHandled()
            }
            #expect(info.calls.description == "data:one data: data:two" && CFSocketIsValid(socket))
            for address in info.addresses.value { #expect(CFEqual(address, CFSocketCopyAddress(sender))) }
            CFSocketInvalidate(socket)
            CFSocketInvalidate(sender)
        }
    }

    @Test(arguments: [datagramType, packetsType])
    func `a message that is longer than any of UDP is delivered whole`(type: Int32) throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(type), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, .dataCallBack, info)
            try attach(socket, to: loop)
            let long = String(repeating: "m", count: 100_000)
            for text in [long, "short"] { pair.write(text) }
            runUntilHandled()
            runUntilHandled()
            #expect(info.calls.description == "data:\(long) data:short")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `a write callback comes once each time that it is enabled, or always with its flag`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, .writeCallBack, info)
            try attach(socket, to: loop)
            #expect(pass() && !pass())
            CFSocketEnableCallBacks(socket, CFSocketCallBackType.writeCallBack.rawValue)
            #expect(pass() && !pass())
            CFSocketSetSocketFlags(socket, kCFSocketAutomaticallyReenableWriteCallBack | kCFSocketCloseOnInvalidate)
            CFSocketEnableCallBacks(socket, CFSocketCallBackType.writeCallBack.rawValue)
            #expect(pass() && pass())
            #expect(info.calls.description == "write write write write")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `one pass calls back for data and for room`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, [.dataCallBack, .connectCallBack, .writeCallBack], info)
            pair.write("a")
            try attach(socket, to: loop)
            #expect(pass())
            #expect(info.calls.take() == "connect data:a write" && !pass())
            CFSocketEnableCallBacks(socket, 15)
            #expect(pass() && info.calls.take() == "write")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `disabled callbacks do not come until they are enabled, or the source joins its first mode`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, [.readCallBack, .writeCallBack], info)
            pair.write()
            // Not yet in a mode: no effect, as in Core Foundation.
            CFSocketDisableCallBacks(socket, 9)
            let source = try attach(socket, to: loop)
            #expect(pass() && info.calls.take() == "read write")
            CFSocketDisableCallBacks(socket, 1)
            #expect(!pass())
            CFSocketEnableCallBacks(socket, 8)
            #expect(pass() && info.calls.take() == "write")
            CFSocketEnableCallBacks(socket, 1)
            #expect(pass() && info.calls.take() == "read")
            CFSocketDisableCallBacks(socket, 1)
            CFRunLoopRemoveSource(loop, source, kCFRunLoopDefaultMode)
            CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
            #expect(pass() && info.calls.take() == "read write")
            // A callback that disables itself is not enabled again by its flag.
            info.onCall.value = { socket, _ in CFSocketDisableCallBacks(socket, 1) }
            #expect(pass() && !pass() && info.calls.take() == "read")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `enabling on another thread reaches a sleeping loop`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, .readCallBack, info)
            try attach(socket, to: loop)
            CFSocketDisableCallBacks(socket, 1)
            pair.write()
            let other = plainThread {
                try waitUntilAsleep(loop)
                CFSocketEnableCallBacks(socket, 1)
            }
            runUntilHandled()
            try other.join()
            CFSocketInvalidate(socket)
        }
    }

    @Test func `a run in a read callback does not call it again, and one in a data callback gets the next data`() throws {
        try onFreshThread { loop in
            let (pair, reading, receiving) = (SocketPair(datagramType), SocketInfo(), SocketInfo())
            let other = SocketPair(datagramType)
            defer { for pair in [pair, other] { close(pair.peer) } }
            let nested: @Sendable (CFSocket, CFSocketCallBackType) -> Void = { _, _ in CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false) }
            (reading.onCall.value, receiving.onCall.value) = (nested, nested)
            let reader = recordingSocket(pair.native, .readCallBack, reading)
            pair.write()
            try attach(reader, to: loop)
            #expect(pass() && reading.calls.take() == "read")
            // It comes again after the outer call, because nobody has read.
            #expect(pass() && reading.calls.take() == "read")
            CFSocketInvalidate(reader)
            let receiver = recordingSocket(other.native, .dataCallBack, receiving)
            for text in ["1", "2", "3"] { other.write(text) }
            try attach(receiver, to: loop)
            #expect(pass() && receiving.calls.description == "data:1 data:2 data:3")
            CFSocketInvalidate(receiver)
        }
    }
}
