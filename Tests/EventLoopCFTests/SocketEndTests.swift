// Rules proved here, about CFSocket:
// - A native socket has one object, which is invalidated once: by hand, at the end of its data, by its last release.
// - The descriptor is closed afterwards unless the flag is off. `info` is retained and released once.
// - A callback may invalidate its socket; another thread may, too.
// - The socket calls back in the modes and loops of its source, in one of them at a time. A thread that ends in a callback (rule 9.30) leaves it to
//   the others.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory, .threads)) struct SocketEndTests {
    @Test func `a native socket has one object until that is invalidated`() throws {
        let (pair, first, second) = (SocketPair(), SocketInfo(), SocketInfo())
        defer { close(pair.peer) }
        let socket = recordingSocket(pair.native, .readCallBack, first)
        #expect(recordingSocket(pair.native, .dataCallBack, second) === socket)
        #expect(first.retains.value == 1 && second.retains.value == 0)
        CFSocketSetSocketFlags(socket, 0)
        CFSocketInvalidate(socket)
        let next = recordingSocket(pair.native, .dataCallBack, second)
        #expect(next !== socket && CFSocketIsValid(next) && second.retains.value == 1)
        #expect(CFGetTypeID(next) == CFSocketGetTypeID() && CFSocketGetTypeID() != CFFileDescriptorGetTypeID())
        CFSocketInvalidate(next)
        #expect(pair.nativeIsClosed())
    }

    @Test(arguments: [-1, 1_000_000_000])
    func `the object of a descriptor that is not open is invalid`(descriptor: Int32) {
        let info = SocketInfo()
        let socket = recordingSocket(descriptor, .readCallBack, info)
        #expect(!CFSocketIsValid(socket) && CFSocketGetNative(socket) == -1 && CFSocketCreateRunLoopSource(nil, socket, 0) == nil)
        #expect(info.retains.value == info.releases.value)
    }

    @Test(arguments: [false, true])
    func `invalidating ends the source, releases info, and closes unless the flag is off`(closes: Bool) throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, [.readCallBack, .writeCallBack], info)
            if !closes { CFSocketSetSocketFlags(socket, 0) }
            let source = try attach(socket, to: loop)
            #expect(source === CFSocketCreateRunLoopSource(nil, socket, 9))
            #expect(CFSocketGetNative(socket) == pair.native && pass())
            var context = CFSocketContext()
            CFSocketGetContext(socket, &context)
            #expect(context.info == Unmanaged.passUnretained(info).toOpaque())
            let address: CFData = CFSocketCopyAddress(socket)
            CFSocketInvalidate(socket)
            CFSocketInvalidate(socket)
            #expect(!CFSocketIsValid(socket) && !CFRunLoopSourceIsValid(source))
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
            #expect(info.retains.value == 1 && info.releases.value == 1 && pair.nativeIsClosed(closes) == closes)
            CFSocketGetContext(socket, &context)
            #expect(context.info == nil && CFSocketGetNative(socket) == -1 && CFSocketGetNative(nil) == -1)
            #expect(CFSocketCopyAddress(socket) === address && CFSocketCopyPeerAddress(socket) == nil)
            #expect(CFSocketSetAddress(socket, address) == .error)
            CFSocketEnableCallBacks(socket, 9)
            CFSocketDisableCallBacks(socket, 9)
            #expect(CFSocketCreateRunLoopSource(nil, socket, 0) == nil)
            if !closes { close(pair.native) }
        }
    }

    @Test(arguments: [CFSocketCallBackType.readCallBack, .dataCallBack, .writeCallBack, .connectCallBack], [false, true])
    func `a callback may invalidate its socket, and no other callback follows`(type: CFSocketCallBackType, releases: Bool) throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            pair.write()
            info.onCall.value = { socket, seen in
                if seen == type { CFSocketInvalidate(socket) }
            }
            do {
                let socket = recordingSocket(pair.native, [type, .connectCallBack, .writeCallBack], info)
                let source = try attach(socket, to: loop)
                if releases { #expect(CFRunLoopSourceIsValid(source)) }
            }
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .finished)
            #expect(info.releases.value == 1 && pair.nativeIsClosed())
            let expected =
                switch type {
                case .readCallBack: "connect read"
                case .dataCallBack: "connect data:x"
                case .writeCallBack: "connect write"
                default: "connect"
                }
            #expect(info.calls.description == expected)
        }
    }

    @Test func `an accept callback may invalidate its socket`() throws {
        try onFreshThread { loop in
            let (address, info) = (freeAddress(.unix), SocketInfo())
            defer { forget(address) }
            let socket = try listeningSocket(address, .acceptCallBack, info)
            let clients = (0..<2).map { _ in connectedSocket(address) }
            info.onCall.value = { socket, _ in CFSocketInvalidate(socket) }
            try attach(socket, to: loop)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .finished)
            #expect(info.calls.description == "accept")
            // The other connection ended with the listener.
            try waitUntilHungUp(clients[1], "the listener is closed")
            for client in clients { close(client) }
        }
    }

    @Test func `another thread may invalidate while the loop sleeps`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, .readCallBack, info)
            try attach(socket, to: loop)
            let other = plainThread {
                try waitUntilAsleep(loop)
                CFSocketInvalidate(socket)
            }
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .finished)
            try other.join()
            #expect(pair.nativeIsClosed() && info.releases.value == 1 && info.calls.list.isEmpty)
        }
    }

    @Test func `the last release closes the socket, and its source keeps it`() throws {
        let (unused, used, info) = (SocketPair(), SocketPair(), SocketInfo())
        defer { for pair in [unused, used] { close(pair.peer) } }
        do { _ = recordingSocket(unused.native, .readCallBack, info) }
        #expect(info.releases.value == 1 && unused.nativeIsClosed())
        try onFreshThread { loop in
            try attach(recordingSocket(used.native, .readCallBack, info), to: loop)
            used.write()
            #expect(pass() && info.calls.take() == "read" && info.releases.value == 1)
        }
        // The loop has ended with its thread.
        #expect(info.releases.value == 2 && used.nativeIsClosed())
    }

    @Test func `an invalid source is replaced, and the socket stays valid`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            defer { close(pair.peer) }
            pair.write()
            let socket = recordingSocket(pair.native, .readCallBack, info)
            let source = try attach(socket, to: loop)
            CFSocketDisableCallBacks(socket, 1)
            CFRunLoopSourceInvalidate(source)
            #expect(CFSocketIsValid(socket) && CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
            #expect(try attach(socket, to: loop) !== source)
            #expect(pass() && info.calls.description == "read")
            CFSocketInvalidate(socket)
        }
    }

    @Test func `a descriptor that was closed behind its socket invalidates it, and is not closed again`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), SocketInfo())
            let socket = recordingSocket(pair.native, .readCallBack, info)
            try attach(socket, to: loop)
            #expect(!pass())
            close(pair.native)
            let next = Pipe()
            // The loop finds out when it watches for something else.
            CFSocketDisableCallBacks(socket, 1)
            CFSocketEnableCallBacks(socket, 1)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .finished)
            #expect(!CFSocketIsValid(socket) && info.releases.value == 1)
            next.write("still open")
            #expect(next.readAll() == "still open")
            close(pair.peer)
        }
    }

    @Test func `a listener whose descriptor is somebody else's by now leaves it as it is`() throws {
        try onFreshThread { loop in
            let (address, info) = (freeAddress(.unix), SocketInfo())
            defer { forget(address) }
            let socket = try listeningSocket(address, .acceptCallBack, info)
            CFSocketSetSocketFlags(socket, kCFSocketAutomaticallyReenableAcceptCallBack)
            try attach(socket, to: loop)
            let client = connectedSocket(address)
            defer { close(client) }
            let others = Pipe()
            // The accept has made the listener non-blocking, which ends with the object. Its owner replaces the descriptor before.
            info.onCall.value = { socket, _ in
                let native = CFSocketGetNative(socket)
                CFSocketInvalidate(socket)
                #expect(dup2(others.readEnd, native) == native)
                #expect(fcntl(native, F_SETFL, fcntl(native, F_GETFL) | O_NONBLOCK) == 0)
            }
            let native = CFSocketGetNative(socket)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .finished)
            #expect(info.calls.description == "accept")
            #expect(fcntl(native, F_GETFL) & O_NONBLOCK != 0)
            close(native)
        }
    }

    @Test func `a connection that nobody gets is closed`() throws {
        try onFreshThread { loop in
            let address = freeAddress(.unix)
            defer { forget(address) }
            var signature = CFSocketSignature(
                protocolFamily: AF_UNIX, socketType: streamType, protocol: 0, address: .passUnretained(address))
            let listener = CFSocketCreateWithSocketSignature(nil, &signature, CFSocketCallBackType.acceptCallBack.rawValue, nil, nil)
            let socket = try #require(listener)
            try attach(socket, to: loop)
            let client = connectedSocket(address)
            defer { close(client) }
            #expect(pass())
            try waitUntilHungUp(client, "the connection is closed")
            CFSocketInvalidate(socket)
        }
    }

    #if os(Linux)
    @Test func `a socket that the kernel refuses to watch is invalid and is closed`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let (pair, info) = (SocketPair(), SocketInfo())
                // Beside a source of edges, the loop needs a descriptor of its own for another source of the same number.
                let edges = try RunLoop.DescriptorSource(descriptor: pair.native, events: .read, trigger: .edge) { _, _ in }
                CFRunLoopAddSource(loop, edges, kCFRunLoopDefaultMode)
                #expect(!pass())
                let socket = recordingSocket(pair.native, .readCallBack, info)
                let kind = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
                var limit = rlimit()
                getrlimit(kind, &limit)
                let former = limit.rlim_cur
                // No number is free.
                limit.rlim_cur = 3
                setrlimit(kind, &limit)
                try attach(socket, to: loop)
                _ = pass()
                limit.rlim_cur = former
                setrlimit(kind, &limit)
                #expect(!CFSocketIsValid(socket) && info.releases.value == 1 && pair.nativeIsClosed())
                CFRunLoopSourceInvalidate(edges)
                close(pair.peer)
            }
        }
    }
    #endif

    // MARK: Modes and loops

    @Test func `callbacks come in the modes of the source`() throws {
        try onFreshThread { loop in
            let (pair, info, other) = (SocketPair(), SocketInfo(), CFRunLoopMode("other"))
            defer { close(pair.peer) }
            let socket = recordingSocket(pair.native, .readCallBack, info)
            pair.write()
            let source = try attach(socket, to: loop, other)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
            #expect(pass(other))
            CFRunLoopAddSource(loop, source, kCFRunLoopCommonModes)
            CFRunLoopAddCommonMode(loop, "third")
            #expect(pass() && pass("third") && pass(other))
            CFRunLoopRemoveSource(loop, source, kCFRunLoopCommonModes)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
            #expect(pass(other))
            CFRunLoopRemoveSource(loop, source, other)
            #expect(CFRunLoopRunInMode(other, 0, true) == .finished)
            CFSocketInvalidate(socket)
        }
    }

    /// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer), arguments: [CFSocketCallBackType.readCallBack, .dataCallBack])
    func `a socket whose callback ends its thread serves its other loop, or is invalid after the last data`(type: CFSocketCallBackType)
        throws
    {
        let (pair, info) = (SocketPair(), SocketInfo())
        let socket = recordingSocket(pair.native, type, info)
        let (thread, other) = (try RunLoopThread(name: "ends"), RunningLoop())
        info.onCall.value = { _, _ in
            guard info.calls.list.count == 1 else {
                _ = received(pair.native)
                return
            }
            _ = try? attach(socket, to: other.loop)
            pthread_exit(nil)
        }
        try attach(socket, to: thread.runLoop)
        if type == .readCallBack { pair.write() } else { close(pair.peer) }
        #expect(thread.join(timeout: patience))
        if type == .readCallBack {
            try waitUntil("the other loop calls back") { info.calls.list.count == 2 }
            CFSocketInvalidate(socket)
            close(pair.peer)
        } else {
            #expect(!CFSocketIsValid(socket) && info.calls.list == ["data:"])
        }
        try other.end()
        info.onCall.value = nil
    }

    /// As above.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `a socket calls back in its other loop although another source's end ends the thread that connects it`() throws {
        let (address, info, ending) = (freeAddress(.unix), SocketInfo(), RunLoop.CustomSource {})
        defer { forget(address) }
        let server = try listeningSocket(address, [], SocketInfo())
        let socket = try recordingSocket(family: AF_UNIX, .connectCallBack, info)
        let (thread, other) = (try RunLoopThread(name: "ends"), RunningLoop())
        let source = try attach(socket, to: thread.runLoop)
        CFRunLoopAddSource(other.loop, source, kCFRunLoopDefaultMode)
        @Sendable func endThread() { pthread_exit(nil) }
        ending.onInvalidation { endThread() }
        thread.runLoop.add(ending)
        thread.runLoop.perform {
            // The loop learns of this when the socket changes what it watches for.
            _ = try? plainThread { ending.invalidate() }.join()
            _ = CFSocketConnectToAddress(socket, address, 1_200)
        }
        #expect(thread.join(timeout: patience))
        try waitUntil("a loop has called back") { info.calls.list == ["connect"] }
        CFSocketInvalidate(socket)
        CFSocketInvalidate(server)
        try other.end()
    }

    @Test func `two loops share a socket: each datagram comes once, and never two at a time`() throws {
        let (pair, info) = (SocketPair(datagramType), SocketInfo())
        let (inside, overlaps) = (Counter(), Counter())
        let count = 2_000
        let socket = recordingSocket(pair.native, .dataCallBack, info)
        let loops = (0..<2).map { _ in RunningLoop() }
        info.onCall.value = { _, _ in
            if inside.increment() % 2 == 0 { overlaps.increment() }
            inside.increment()
        }
        for loop in loops { try attach(socket, to: loop.loop) }
        for number in 0..<count { pair.write("\(number)") }
        try waitUntil("all datagrams") { info.calls.list.count == count }
        #expect(overlaps.value == 0 && Set(info.calls.list).count == count)
        CFSocketInvalidate(socket)
        for loop in loops { try loop.end() }
        #expect(info.releases.value == 1)
        close(pair.peer)
    }
}
