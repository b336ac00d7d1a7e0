// The end of a socket: by the program, with its loop, in a child of fork.

import EventLoop
import EventLoopDatagrams
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Changes the directory of the process to a new one, in an exit test.
private func inOwnDirectory(_ body: @escaping @Sendable (RunLoop, String) throws -> Void) throws {
    try onFreshThread { loop in
        let directory = OwnDirectory()
        defer { directory.leave() }
        try body(loop, directory.path)
    }
}

@Suite(.bounded, .tags(.memory, .threads)) struct EndTests {
    @Test func `close sends what is queued, and calls fail afterwards`() async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop, mode: .never)
            var options = DatagramSocket.Options()
            options.sendLimit = 2
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, mode: .never, options: options)
            let count = sender.sendUntilRefused()
            var bytes: [UInt8] = []
            while let datagram = receiver.takeFromKernel() { bytes += datagram }
            #expect(bytes.count == count - 2)
            sender.close()
            while let datagram = receiver.takeFromKernel() { bytes += datagram }
            #expect(bytes == (0..<count).map { UInt8(truncatingIfNeeded: $0) })
            #expect(!sender.isOpen && sender.statistics.sent == UInt64(count))
            sender.close()
            #expect(!sender.send([1]))
            await #expect(throws: StreamError.closed) { try await sender.write([1]) }
            #expect(sender.withDescriptor { $0 } == nil)
            #expect(throws: RunLoop.SourceError.self) { try sender.join(.ipv4(host: "239.1.2.3", port: 0)) }
        }
    }

    @Test func `close ends a waiting reader with nil, and a waiting writer with an error`() async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop, mode: .never)
            var options = DatagramSocket.Options()
            options.sendLimit = 1
            let socket = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, options: options)
            _ = socket.sendUntilRefused()
            let writer = Task { try await socket.write([1]) }
            let reader = Task {
                var datagrams = socket.datagrams.makeAsyncIterator()
                return try await datagrams.next()
            }
            for _ in 0..<20 { await Task.yield() }
            socket.close()
            await #expect(throws: StreamError.closed) { try await writer.value }
            #expect(try await reader.value == nil)
            #expect(socket.statistics.sendDrops == 2)
        }
    }

    @Test func `the file of a Unix socket is removed at its end, unless it is another's`() async throws {
        try await withSockets { loop, directory in
            let path = directory + "/socket"
            let first = try DatagramSocket(boundTo: .unix(path: path), on: loop)
            #expect(filesIn(directory) == ["socket"])
            first.close()
            #expect(filesIn(directory) == [])
            let second = try DatagramSocket(boundTo: .unix(path: path), on: loop)
            unlink(path)
            let third = try DatagramSocket(boundTo: .unix(path: path), on: loop)
            second.close()
            #expect(filesIn(directory) == ["socket"])
            third.close()
            #expect(filesIn(directory) == [])
        }
    }

    @Test func `the file of a Unix socket with a relative path is removed from wherever the program is`() async {
        await #expect(processExitsWith: .success) {
            try inOwnDirectory { loop, directory in
                let socket = try DatagramSocket(boundTo: .unix(path: "socket"), on: loop)
                #expect(filesIn(directory) == ["socket"])
                #expect(chdir("/") == 0)
                socket.close()
                #expect(filesIn(directory) == [])
            }
        }
    }

    @Test func `a peer with a relative path is found again from wherever the program is`() async {
        await #expect(processExitsWith: .success) {
            try inOwnDirectory { loop, directory in
                let peer = try DatagramSocket(boundTo: .unix(path: "peer"), on: loop)
                let sender = try DatagramSocket(connectedTo: .unix(path: "peer"), on: loop)
                #expect(chdir("/") == 0)
                peer.close()
                let successor = try DatagramSocket(boundTo: .unix(path: directory + "/peer"), on: loop)
                for number: UInt8 in 1...2 { #expect(sender.send([number])) }
                #expect([successor.takeFromKernel(), successor.takeFromKernel()] == [[1], [2]])
                successor.close()
            }
        }
    }

    @Test(arguments: Family.allCases)
    func `releasing a socket closes it, although it has a handler`(family: Family) async throws {
        try await withSockets { loop, directory in
            let address = family.address("socket", in: directory)
            var socket: DatagramSocket? = try DatagramSocket(boundTo: address, on: loop)
            let item = Box(0)
            socket?.onReceive { [item] _, _ in item.increment() }
            let bound = try #require(socket?.localAddress)
            #expect(throws: RunLoop.SourceError.self) { try DatagramSocket(boundTo: bound, on: loop) }
            socket = nil
            try await suspendUntil("the address is free") { (try? DatagramSocket(boundTo: bound, on: loop)) != nil }
        }
    }

    @Test func `when the loop ends, next returns what is queued, throws RunLoopEnded once, and then returns nil`() async throws {
        let directory = makeTemporaryDirectory()
        defer { removeFlatDirectory(directory) }
        let thread = try RunLoopThread(name: "datagrams")
        let socket = try DatagramSocket(boundTo: .unix(path: directory + "/socket"), on: thread.runLoop)
        let sender = try DatagramSocket(connectedTo: socket.localAddress, on: thread.runLoop)
        sender.send([1])
        try await suspendUntil("it is queued") { socket.statistics.received == 1 }
        thread.stop()
        await thread.join()
        var datagrams = socket.datagrams.makeAsyncIterator()
        #expect(try await datagrams.next()?.bytes == [1])
        await #expect(throws: RunLoopEnded.self) { try await datagrams.next() }
        #expect(try await datagrams.next() == nil)
        #expect(try await datagrams.next() == nil)
        #expect(!socket.isOpen && filesIn(directory) == [] && socket.withDescriptor { $0 } == nil)
        #expect(!sender.send([1]))
        await #expect(throws: StreamError.closed) { try await sender.write([1]) }
        #expect(throws: RunLoop.SourceError.loopEnded) { try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop) }
    }

    @Test func `the end of the loop ends a waiting reader with RunLoopEnded`() async throws {
        let thread = try RunLoopThread(name: "datagrams")
        let socket = try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop)
        let reader = Task {
            var datagrams = socket.datagrams.makeAsyncIterator()
            return try await datagrams.next()
        }
        for _ in 0..<20 { await Task.yield() }
        thread.stop()
        await thread.join()
        await #expect(throws: RunLoopEnded.self) { try await reader.value }
    }

    @Test func `a descriptor stays open while its body runs, although the socket is closed`() async throws {
        try await withSockets { loop, _ in
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let number = socket.withDescriptor { descriptor in
                socket.close()
                #expect(fcntl(descriptor, F_GETFD) >= 0)
                return descriptor
            }
            #expect(number != nil && socket.withDescriptor { $0 } == nil)
        }
    }

    @Test func `a handler is released when the socket has given back its descriptor`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let release: @Sendable () -> Void = { [weak socket] in
                trace.add(socket?.withDescriptor { $0 } == nil ? "closed" : "open")
            }
            socket.onReceive { [canary = Canary(release)] _, _ in canary.touch() }
            socket.close()
            #expect(trace.list == ["closed"])
        }
    }

    /// In a process of its own, which is killed if a lock stays held. Neither sanitizer follows a thread that unwinds.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `a thread that is cancelled while it sends leaves the socket to the others`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "serves")
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop, mode: .never)
            let cancelled = plainThread { () -> Bool in
                pthread_cancel(pthread_self())
                let isSent = socket.send([1], to: socket.localAddress)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return isSent
            }
            let isFirstSent = try cancelled.join()
            let isSecondSent = socket.send([2], to: socket.localAddress)
            #expect(isFirstSent && isSecondSent)
            thread.stop()
            await thread.join()
        }
    }

    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `a thread that is cancelled returns from withDescriptor, and the descriptor is closed with the socket`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "serves")
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop, mode: .never)
            let cancelled = plainThread { () -> Int32? in
                pthread_cancel(pthread_self())
                let number = socket.withDescriptor { descriptor in
                    var byte: UInt8 = 0
                    // A cancellation point, and there is nothing to receive.
                    _ = recv(descriptor, &byte, 1, Int32(MSG_DONTWAIT))
                    return descriptor
                }
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return number
            }
            let returned = try cancelled.join()
            let number = try #require(returned)
            socket.close()
            thread.stop()
            await thread.join()
            let flags = fcntl(number, F_GETFD)
            #expect(flags == -1)
        }
    }

    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `a thread that is cancelled learns why a socket cannot be made`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "serves")
            let loop = thread.runLoop
            let cancelled = plainThread { () -> Bool in
                pthread_cancel(pthread_self())
                var options = DatagramSocket.Options()
                options.multicastInterface = "no such one"
                let socket = try? DatagramSocket(boundTo: .anyIPv4, on: loop, options: options)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return socket == nil
            }
            let isRefused = try cancelled.join()
            #expect(isRefused)
            thread.stop()
            await thread.join()
        }
    }

    /// In a process of its own, which is killed if a lock stays held.
    @Test func `what ends while a socket begins to wait for room may use the socket`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            try inOwnDirectory { loop, directory in
                let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop, mode: .never)
                let filler = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, mode: .never)
                _ = filler.sendUntilRefused()
                let sender = try DatagramSocket(boundTo: .unix(path: directory + "/sender"), on: loop)
                // From now on the loop watches what joins the mode at once.
                _ = loop.run(for: .zero)
                let (pipe, trace) = (Pipe(), Trace())
                let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 800)
                let bad = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in }
                bad.onInvalidation { trace.add("queued, and \(sender.statistics.sent) sent") }
                try plainThread { loop.add(bad) }.join()
                close(number)
                // Adds a timer on the loop's thread, which first carries out what the other thread has added.
                let isQueued = sender.send([1], to: receiver.localAddress)
                #expect(isQueued && trace.list == ["queued, and 0 sent"])
                for socket in [receiver, filler, sender] { socket.close() }
            }
        }
    }

    #if os(Linux)
    enum Use: String, CaseIterable, Sendable, Codable { case lastRelease, close, nothing, send, write }

    @Test(arguments: Use.allCases)
    func `a child that ends its use of a socket does not end the parent's`(use: Use) async {
        await #expect(processExitsWith: .success) { [use] in
            let directory = makeTemporaryDirectory()
            defer { removeFlatDirectory(directory) }
            let thread = try RunLoopThread(name: "parent's")
            let box = Box<DatagramSocket?>(try DatagramSocket(boundTo: .unix(path: directory + "/parent"), on: thread.runLoop))
            let address = box.value!.localAddress
            try waitUntilAsleepAfterPass(thread.runLoop)
            for _ in 0..<5 {
                let end = inForkedChild {
                    switch use {
                    case .lastRelease: box.value = nil
                    case .close: box.value?.close()
                    case .send: box.value?.send([8], to: address)
                    case .write:
                        guard let thread = try? RunLoopThread(name: "child's") else { return 1 }
                        let isOver = Gate()
                        Task(executorPreference: thread.runLoop) {
                            try? await box.value?.write([8], to: address)
                            isOver.open()
                        }
                        isOver.wait()
                    case .nothing: break
                    }
                    return 0
                }
                #expect(end.status == 0, "\(use): \(end)")
            }
            #expect(filesIn(directory) == ["parent"])
            let socket = try #require(box.value)
            #expect(socket.isOpen)
            let sender = try DatagramSocket(connectedTo: address, on: thread.runLoop)
            try await sender.write([7])
            var datagrams = socket.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [7])
            thread.stop()
            await thread.join()
        }
    }

    @Test func `a child neither joins a group nor sets an option for its parent`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "parent's")
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop)
            try waitUntilAsleepAfterPass(thread.runLoop)
            let end = inForkedChild {
                let group = RunLoop.SocketAddress.ipv4(host: "239.1.2.3", port: 0)
                do throws(RunLoop.SourceError) {
                    try socket.join(group)
                    return 1
                } catch {
                    if error.errno != EBADF { return 2 }
                }
                return socket.withDescriptor { $0 } == nil ? 0 : 3
            }
            #expect(end.status == 0, "\(end)")
            #expect(socket.withDescriptor { $0 } != nil)
            thread.stop()
            await thread.join()
        }
    }

    @Test func `a child that releases a socket which has ended closes no other file`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "parent's")
            let others = Pipe()
            // What the runtime opens for tasks exists, so nothing else takes the number.
            try await thread.runLoop.performAsync {}
            let box = Box<DatagramSocket?>(try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop))
            let number = try #require(box.value?.withDescriptor { $0 })
            // There it is closed when the call returns.
            try await thread.runLoop.performAsync { box.value?.close() }
            #expect(dup2(others.readEnd, number) == number)
            try waitUntilAsleepAfterPass(thread.runLoop)
            let end = inForkedChild {
                box.value = nil
                return fcntl(number, F_GETFD) >= 0 ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            thread.stop()
            await thread.join()
        }
    }
    #endif
}
