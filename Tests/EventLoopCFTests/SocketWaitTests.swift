// Rules proved here, about waits of CFSocket and CFFileDescriptor:
// - Every wait has one deadline, also for a receiver that the kernel calls ready without room, and behind a thread that sends.
// - A connection that a signal interrupts succeeds when it is made.
// - A thread that connects a socket gets the outcome of its own attempt; another one gets an error meanwhile.
// - A thread that is cancelled in a call leaves neither a lock nor its turn to nobody (rule 9.31).
// - A child of fork ends its use of what it has inherited, whatever the parent's threads did, and waits for none of them. Its own loops call back.

#if os(Linux)

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Glibc
import Testing

private let short: CFTimeInterval = 0.1

/// A datagram socket with a name, whose queue is full, and a socket that can send to it.
private final class FullReceiver: Sendable {
    let receiver: Int32
    let sender: CFSocket
    let address: CFData

    init() throws {
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        receiver = socket(AF_UNIX, datagramType, 0)
        // An address of the family alone: the kernel chooses an abstract name.
        var size = socklen_t(MemoryLayout<sa_family_t>.size)
        let fd = receiver
        let bound = withUnsafeMutablePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                if bind(fd, address, size) != 0 { return false }
                size = socklen_t(MemoryLayout<sockaddr_un>.size)
                return getsockname(fd, address, &size) == 0
            }
        }
        #expect(bound)
        address = withUnsafeBytes(of: &name) {
            CFDataCreate(nil, $0.baseAddress!.assumingMemoryBound(to: UInt8.self), CFIndex(size))
        }
        sender = try #require(CFSocketCreate(nil, AF_UNIX, datagramType, 0, 0, nil, nil))
        let (native, name2, size2) = (CFSocketGetNative(sender), name, size)
        withUnsafePointer(to: name2) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                while sendto(native, "x", 1, Int32(MSG_DONTWAIT), address, size2) == 1 {}
            }
        }
    }

    deinit { close(receiver) }

    func drain() {
        var buffer = [UInt8](repeating: 0, count: 16)
        while recv(receiver, &buffer, buffer.count, Int32(MSG_DONTWAIT)) > 0 {}
    }
}

@Suite(.bounded, .serialized) struct SocketWaitTests {
    @Test func `a send to a receiver without room ends at its time-out, and uses no processor meanwhile`() throws {
        let full = try FullReceiver()
        let used = try plainThread {
            var (start, end) = (timespec(), timespec())
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start)
            #expect(CFSocketSendData(full.sender, full.address, data("x"), 0.5) == .timeout)
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end)
            return (end.tv_sec - start.tv_sec) * 1_000 + (end.tv_nsec - start.tv_nsec) / 1_000_000
        }.join(within: .seconds(60))
        #expect(used < 250, "\(used) ms of 500")
        full.drain()
        #expect(CFSocketSendData(full.sender, full.address, data("x"), short) == .success)
    }

    @Test func `a time-out counts while another thread sends`() throws {
        let full = try FullReceiver()
        let patient = plainThread { CFSocketSendData(full.sender, full.address, data("x"), 0) }
        for _ in 0..<1_000 { sched_yield() }
        let hurried = plainThread { CFSocketSendData(full.sender, full.address, data("x"), short) }
        #expect(try hurried.join(within: .seconds(60)) == .timeout)
        full.drain()
        #expect(try patient.join() == .success)
    }

    @Test func `a non-blocking socket does not wait for another thread that sends`() throws {
        let full = try FullReceiver()
        #expect(fcntl(CFSocketGetNative(full.sender), F_SETFL, O_NONBLOCK) == 0)
        let patient = plainThread { CFSocketSendData(full.sender, full.address, data("x"), 1_200) }
        for _ in 0..<1_000 { sched_yield() }
        let hurried = plainThread { CFSocketSendData(full.sender, full.address, data("x"), 0) }
        #expect(try hurried.join(within: .seconds(60)) == .error)
        full.drain()
        #expect(try patient.join() == .success)
    }

    @Test(arguments: [0, 1_200.0])
    func `a thread that connects gets its own outcome, and another one that connects the same socket gets an error at once`(
        timeout: CFTimeInterval
    ) throws {
        let (addresses, info) = ([freeAddress(.unix), freeAddress(.unix)], SocketInfo())
        defer { for address in addresses { forget(address) } }
        let listeners = try addresses.map { try listeningSocket($0, [], info) }
        // The queue of the first has room for one.
        listen(CFSocketGetNative(listeners[0]), 0)
        let filler = try recordingSocket(family: AF_UNIX, [], info)
        #expect(CFSocketConnectToAddress(filler, addresses[0], 0) == .success)
        let client = try recordingSocket(family: AF_UNIX, [], info)
        let patient = plainThread { CFSocketConnectToAddress(client, addresses[0], timeout) }
        try waitUntil("the thread waits for room") { client.testsOnlyIsConnecting }
        for hurried in [-1, 0, short, 1_200] {
            #expect(CFSocketConnectToAddress(client, addresses[1], hurried) == .error)
        }
        close(accept(CFSocketGetNative(listeners[0]), nil, nil))
        #expect(try patient.join() == .success)
        #expect(!client.testsOnlyIsConnecting && CFSocketCopyPeerAddress(client) != nil)
        for socket in listeners + [filler, client] { CFSocketInvalidate(socket) }
    }

    @Test func `a descriptor has a new source after the first was invalidated`() throws {
        try onFreshThread { loop in
            let (pipe, trace) = (Pipe(), Trace())
            var context = CFFileDescriptorContext()
            context.info = Unmanaged.passUnretained(trace).toOpaque()
            let made = CFFileDescriptorCreate(
                nil, pipe.readEnd, false, { _, _, info in Unmanaged<Trace>.fromOpaque(info!).takeUnretainedValue().add("ready") }, &context)
            let descriptor = try #require(made)
            let first = try #require(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0))
            CFRunLoopAddSource(loop, first, kCFRunLoopDefaultMode)
            CFRunLoopSourceInvalidate(first)
            let second = try #require(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0))
            #expect(second !== first && CFRunLoopSourceIsValid(second))
            CFRunLoopAddSource(loop, second, kCFRunLoopDefaultMode)
            CFFileDescriptorEnableCallBacks(descriptor, kCFFileDescriptorReadCallBack)
            pipe.write()
            #expect(pass())
            #expect(trace.take() == "ready")
            withExtendedLifetime(trace) {}
        }
    }

    @Test func `a connection that a signal interrupts is connected when it succeeds`() async {
        await #expect(processExitsWith: .success) {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in }  // without SA_RESTART: the call is interrupted
            sigaction(SIGUSR1, &action, nil)
            let folder = makeTemporaryDirectory()
            var name = sockaddr_un()
            name.sun_family = sa_family_t(AF_UNIX)
            let path = Array("\(folder)/s".utf8)
            withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path) }
            let address: CFData = withUnsafeBytes(of: &name) {
                CFDataCreate(nil, $0.baseAddress!.assumingMemoryBound(to: UInt8.self), CFIndex($0.count))
            }
            let listener = try #require(CFSocketCreate(nil, AF_UNIX, streamType, 0, 0, nil, nil))
            #expect(CFSocketSetAddress(listener, address) == .success)
            listen(CFSocketGetNative(listener), 0)
            // The queue has room for one.
            let filler = try #require(CFSocketCreate(nil, AF_UNIX, streamType, 0, 0, nil, nil))
            #expect(CFSocketConnectToAddress(filler, address, 5) == .success)
            let client = try #require(CFSocketCreate(nil, AF_UNIX, streamType, 0, 0, nil, nil))
            #expect(CFSocketConnectToAddress(client, address, short) == .timeout)
            let (handle, isOver) = (Box<UInt>(0), Box(false))
            let connecting = plainThread {
                handle.value = UInt(pthread_self())
                defer { isOver.value = true }
                return CFSocketConnectToAddress(client, address, 0)
            }
            try waitUntil { handle.value != 0 }
            for _ in 0..<50 where !isOver.value {
                pthread_kill(pthread_t(handle.value), SIGUSR1)
                usleep(2_000)
            }
            #expect(!isOver.value, "there is no room yet")
            close(accept(CFSocketGetNative(listener), nil, nil))
            #expect(try connecting.join() == .success)
            #expect(CFSocketCopyPeerAddress(client) != nil)
            removeFlatDirectory(folder)
        }
    }

    /// Code that is not specialized asks the Swift runtime for metadata, under locks of the runtime that a fork does not release. Under
    /// ThreadSanitizer a thread is inside them so often that some of the children wait for them.
    @Test(.enabled(if: !isUnderThreadSanitizer, "children wait for locks of the Swift runtime"))
    func `children end their use of a descriptor that a thread of the parent changes`() async {
        await #expect(processExitsWith: .success) {
            let pipe = Pipe()
            let isOver = Box(false)
            let made = CFFileDescriptorCreate(nil, pipe.readEnd, false, { _, _, _ in }, nil)
            let descriptor = try #require(made)
            let changer = plainThread {
                while !isOver.value {
                    CFFileDescriptorEnableCallBacks(descriptor, kCFFileDescriptorReadCallBack)
                    CFFileDescriptorDisableCallBacks(descriptor, kCFFileDescriptorReadCallBack)
                }
            }
            for _ in 0..<60 {
                let end = oneForkedChild {
                    CFFileDescriptorInvalidate(descriptor)
                    return 0
                }
                #expect(end.status == 0, "\(end)")
            }
            isOver.value = true
            try changer.join()
            #expect(CFFileDescriptorIsValid(descriptor))
        }
    }

    @Test func `a child that ends a listener leaves it non-blocking for its parent`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let (address, info) = (freeAddress(.unix), SocketInfo())
                defer { forget(address) }
                let listener = try listeningSocket(address, .acceptCallBack, info)
                // Without the flag to close.
                CFSocketSetSocketFlags(listener, kCFSocketAutomaticallyReenableAcceptCallBack)
                let source = try attach(listener, to: loop)
                let client = connectedSocket(address)
                defer { close(client) }
                #expect(pass() && info.calls.take() == "accept")
                CFRunLoopRemoveSource(loop, source, kCFRunLoopDefaultMode)
                #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
                let end = inForkedChild {
                    CFSocketInvalidate(listener)
                    return CFSocketIsValid(listener) ? 1 : 0
                }
                #expect(end.status == 0, "\(end)")
                #expect(CFSocketIsValid(listener))
                #expect(fcntl(CFSocketGetNative(listener), F_GETFL) & O_NONBLOCK != 0)
            }
        }
    }

    @Test func `a thread that is cancelled while it sends or connects does both, and others send after it`() async {
        // In a process of its own, which is killed if the turn is not given back.
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let (pair, address) = (SocketPair(), freeAddress(.unix))
            defer { forget(address) }
            let socket = recordingSocket(pair.native, [], SocketInfo())
            let listener = try listeningSocket(address, .acceptCallBack, SocketInfo())
            let client = try recordingSocket(family: AF_UNIX, [], SocketInfo())
            let cancelled = plainThread { () -> [CFSocketError] in
                pthread_cancel(pthread_self())
                let results = [CFSocketSendData(socket, nil, data("x"), 0), CFSocketConnectToAddress(client, address, 0)]
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return results
            }
            let results = try cancelled.join()
            #expect(results == [.success, .success])
            let result = CFSocketSendData(socket, nil, data("y"), 0)
            #expect(result == .success)
            let text = received(pair.peer)
            #expect(text == "xy")
            CFSocketInvalidate(listener)
        }
    }

    @Test func `a thread that is cancelled while it waits for its turn to send does not end there`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let full = try FullReceiver()
            let patient = plainThread { CFSocketSendData(full.sender, full.address, data("x"), 0) }
            // In nearly every run it has its turn then. In the others the cancelled thread has it.
            for _ in 0..<10_000 { sched_yield() }
            let cancelled = plainThread { () -> CFSocketError in
                pthread_cancel(pthread_self())
                let result = CFSocketSendData(full.sender, full.address, data("x"), short)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return result
            }
            let result = try cancelled.join()
            #expect(result == .timeout)
            full.drain()
            let patientResult = try patient.join()
            #expect(patientResult == .success)
        }
    }

    @Test func `a thread that is cancelled between two callbacks does not end while it receives the data of the second`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            try onFreshThread { loop in
                let (pairs, info) = ([SocketPair(), SocketPair()], SocketInfo())
                for pair in pairs {
                    try attach(recordingSocket(pair.native, .dataCallBack, info), to: loop)
                    pair.write()
                }
                info.onCall.value = { _, _ in
                    guard info.calls.list.count == 1 else {
                        // So that the thread ends in the usual way.
                        pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                        return
                    }
                    pthread_cancel(pthread_self())
                }
                _ = CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
                #expect(info.calls.list == ["data:x", "data:x"])
                info.onCall.value = nil
                for pair in pairs { close(pair.peer) }
            }
        }
    }

    @Test func `a thread that is cancelled while it enables callbacks after a refused connection leaves no lock held`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            try onFreshThread { loop in
                let (info, dead) = (SocketInfo(), try DeadAddress(.ipv4))
                let socket = try recordingSocket(family: PF_INET, [.connectCallBack, .readCallBack], info)
                try attach(socket, to: loop)
                let result = CFSocketConnectToAddress(socket, dead.address, -1)
                #expect(result == .success)
                while info.calls.list.isEmpty { runUntilHandled() }
                _ = pass()
                #expect(!pass() && info.calls.take() == "connect:\(ECONNREFUSED) read")
                pthread_cancel(pthread_self())
                CFSocketEnableCallBacks(socket, CFSocketCallBackType.readCallBack.rawValue)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                let other = plainThread { CFSocketIsValid(socket) }
                let isValid = try other.join()
                #expect(isValid)
                CFSocketInvalidate(socket)
            }
        }
    }

    /// 1. A thread of the parent waits in connect(2) for room in the listener's queue.
    /// 2. The child makes room, so the socket is connected, and sends to it.
    @Test func `in a child, a socket calls back that a thread of the parent was connecting`() async {
        await #expect(processExitsWith: .success) {
            let (address, info) = (freeAddress(.unix), SocketInfo())
            defer { forget(address) }
            let listener = try listeningSocket(address, [], info)
            let native = CFSocketGetNative(listener)
            // The queue has room for one.
            listen(native, 0)
            let filler = try recordingSocket(family: AF_UNIX, [], info)
            let filled = CFSocketConnectToAddress(filler, address, 0)
            #expect(filled == .success)
            let client = try recordingSocket(family: AF_UNIX, .readCallBack, info)
            let connecting = plainThread { CFSocketConnectToAddress(client, address, 0) }
            try waitUntil("the thread waits for room") { client.testsOnlyIsConnecting }
            let end = oneForkedChild {
                close(accept(native, nil, nil))
                let peer = accept(native, nil, nil)
                _ = write(peer, "x", 1)
                let isHandled = try? onFreshThread { loop in
                    try attach(client, to: loop)
                    return CFRunLoopRunInMode(kCFRunLoopDefaultMode, 60, true) == .handledSource
                }
                return isHandled == true && info.calls.take() == "read" ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            let result = try connecting.join()
            #expect(result == .success)
            for socket in [listener, filler, client] { CFSocketInvalidate(socket) }
        }
    }

    @Test func `a child does not wait for a thread of the parent that sends`() async {
        await #expect(processExitsWith: .success) {
            let full = try FullReceiver()
            let patient = plainThread { CFSocketSendData(full.sender, full.address, data("x"), 0) }
            func sendInChild() -> ChildEnd {
                oneForkedChild { CFSocketSendData(full.sender, full.address, data("x"), short) == .error ? 0 : 1 }
            }
            var end = sendInChild()
            // A child of a fork before the patient thread has its turn finds it free, and waits for room until its time-out.
            for _ in 0..<50 where end.status == 1 << 8 { end = sendInChild() }
            #expect(end.status == 0, "\(end)")
            full.drain()
            #expect(try patient.join() == .success)
        }
    }
}

#endif
