// What arrives: handlers, tasks, order, limits.

import EventLoop
import EventLoopDatagrams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory, .threads)) struct ReceivingTests {
    @Test(arguments: Family.allCases)
    func `a handler answers each datagram`(family: Family) async throws {
        try await withSockets { loop, directory in
            let server = try DatagramSocket(boundTo: family.address("server", in: directory), on: loop)
            let client = try DatagramSocket(boundTo: family.address("client", in: directory), on: loop)
            server.onReceive { socket, datagram in socket.send(datagram.bytes + [0], to: datagram.peer) }
            let answers = Box<[Datagram]>([])
            client.onReceive { _, datagram in answers.change { $0.append(datagram) } }
            for number in 1...5 { #expect(client.send([UInt8(number)], to: server.localAddress)) }
            try await suspendUntil("the answers") { answers.value.count == 5 }
            #expect(answers.value == (1...5).map { Datagram(bytes: [$0, 0], peer: server.localAddress) })
            #expect(server.statistics.received == 5 && server.statistics.sent == 5)
            #expect(client.statistics.received == 5 && client.statistics.sent == 5 && client.statistics.receiveDrops == 0)
        }
    }

    @Test(arguments: Family.allCases)
    func `a task exchanges datagrams with a connected peer`(family: Family) async throws {
        try await withSockets { loop, directory in
            let server = try DatagramSocket(boundTo: family.address("server", in: directory), on: loop)
            let client = try DatagramSocket(
                connectedTo: server.localAddress, from: family.address("client", in: directory), on: loop)
            try await client.write([1, 2, 3])
            var questions = server.datagrams.makeAsyncIterator()
            let question = try #require(try await questions.next())
            #expect(question == Datagram(bytes: [1, 2, 3], peer: client.localAddress))
            try await server.write([], to: question.peer)
            var answers = client.datagrams.makeAsyncIterator()
            #expect(try await answers.next() == Datagram(bytes: [], peer: server.localAddress))
        }
    }

    @Test func `a Unix socket without a name has an empty path`() async throws {
        try await withSockets { loop, directory in
            let server = try DatagramSocket(boundTo: .unix(path: directory + "/server"), on: loop)
            let client = try DatagramSocket(connectedTo: server.localAddress, on: loop)
            try await client.write([7])
            var datagrams = server.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.peer == .unix(path: ""))
        }
    }

    @Test func `a datagram that is too long is truncated and marked`() async throws {
        try await withSockets { loop, _ in
            var options = DatagramSocket.Options()
            options.maximumSize = 4
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop, options: options)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
            sender.send([1, 2, 3, 4, 5])
            sender.send([1, 2, 3, 4])
            var datagrams = receiver.datagrams.makeAsyncIterator()
            let long = try #require(try await datagrams.next())
            #expect(long.bytes == [1, 2, 3, 4] && long.isTruncated)
            let whole = try #require(try await datagrams.next())
            #expect(whole.bytes == [1, 2, 3, 4] && !whole.isTruncated)
        }
    }

    @Test func `what exceeds receiveLimit is dropped and counted, and the first ones are kept`() async throws {
        try await withSockets { loop, _ in
            var options = DatagramSocket.Options()
            options.receiveLimit = 4
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop, options: options)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
            for number in 0..<10 { sender.send([UInt8(number)]) }
            try await suspendUntil("all have arrived") { receiver.statistics.received + receiver.statistics.receiveDrops == 10 }
            #expect(receiver.statistics.received == 4 && receiver.statistics.receiveDrops == 6)
            var datagrams = receiver.datagrams.makeAsyncIterator()
            for number in 0..<4 { #expect(try await datagrams.next()?.bytes == [UInt8(number)]) }
            sender.send([99])
            #expect(try await datagrams.next()?.bytes == [99])
        }
    }

    #if os(Linux)
    @Test func `what the kernel drops is counted`() async throws {
        try await withSockets { loop, _ in
            let receiver = try await DatagramSocket.overrun(on: loop)
            var kept: UInt64 = 0
            try await suspendUntil("each is kept or dropped") {
                while receiver.takeFromKernel() != nil { kept += 1 }
                return kept + receiver.statistics.receiveDrops >= 1_000
            }
            #expect(kept > 0 && kept < 1_000)
            #expect(receiver.statistics.receiveDrops == 1_000 - kept)
            receiver.close()
            #expect(receiver.statistics.receiveDrops == 1_000 - kept)
        }
    }

    @Test func `a descriptor that other code has replaced adds nothing to the drops that were counted`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "datagrams")
            let receiver = try await DatagramSocket.overrun(on: thread.runLoop)
            let number = try #require(receiver.withDescriptor { $0 })
            let (copy, other) = (dup(number), Pipe())
            #expect(dup2(other.readEnd, number) == number)
            let drops = receiver.statistics.receiveDrops
            #expect(drops > 0 && drops <= 1_000)
            // The library closes it.
            #expect(dup2(copy, number) == number)
            close(copy)
            withExtendedLifetime(other) {}
            thread.stop()
            await thread.join()
        }
    }

    /// `make flood` has a million.
    private static let floodSize = getenv("EVENTLOOP_FLOOD").flatMap { Int(String(cString: $0)) } ?? 50_000

    @Test func `of a flood, only what the kernel counts as lost is lost, and the rest keeps its order`() async throws {
        try await withSockets { loop, _ in
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, mode: .never)
            let (last, isOrdered) = (Box(-1), Box(true))
            receiver.onReceive { _, datagram in
                let number = datagram.bytes.reduce(0) { $0 << 8 | Int($1) }
                if number <= last.value { isOrdered.value = false }
                last.value = number
            }
            for number in 0..<Self.floodSize {
                try await sender.write([UInt8(number >> 16), UInt8(number >> 8 & 255), UInt8(number & 255)])
            }
            try await suspendUntil("each is received or lost") {
                let statistics = receiver.statistics
                return statistics.received + statistics.receiveDrops == Self.floodSize
            }
            #expect(sender.statistics.sent == Self.floodSize && isOrdered.value)
        }
    }
    #endif

    @Test func `two thousand datagrams keep their order, and none is lost or delivered twice`() async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop)
            var options = DatagramSocket.Options()
            options.sendLimit = 8
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, options: options)
            let numbers = Box<[Int]>([])
            receiver.onReceive { _, datagram in
                let number = Int(datagram.bytes[0]) << 8 | Int(datagram.bytes[1])
                numbers.change { $0.append(number) }
            }
            for number in 0..<2_000 { try await sender.write([UInt8(number >> 8), UInt8(number & 255)]) }
            try await suspendUntil("all have arrived") { numbers.value.count >= 2_000 }
            #expect(numbers.value == Array(0..<2_000))
            #expect(sender.statistics.sent == 2_000 && sender.statistics.sendDrops == 0)
        }
    }

    @Test func `a handler that is set late gets what is queued, and one that is set again replaces the first`() async throws {
        try await withSockets { loop, _ in
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
            for number in 0..<3 { sender.send([UInt8(number)]) }
            try await suspendUntil("they are queued") { receiver.statistics.received == 3 }
            let (first, second) = (Box<[UInt8]>([]), Box<[UInt8]>([]))
            receiver.onReceive { _, datagram in first.change { $0 += datagram.bytes } }
            try await suspendUntil("they are delivered") { first.value == [0, 1, 2] }
            receiver.onReceive { _, datagram in second.change { $0 += datagram.bytes } }
            sender.send([3])
            try await suspendUntil("the other one is called") { second.value == [3] }
            #expect(first.value == [0, 1, 2])
        }
    }

    @Test func `a handler that another thread sets during a delivery gets the rest of it`() async throws {
        try await withSockets { loop, _ in
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
            for number in 0..<4 { sender.send([UInt8(number)]) }
            try await suspendUntil("they are queued") { receiver.statistics.received == 4 }
            let (first, second) = (Box<[UInt8]>([]), Box<[UInt8]>([]))
            receiver.onReceive { receiver, datagram in
                first.change { $0 += datagram.bytes }
                try? plainThread { receiver.onReceive { _, datagram in second.change { $0 += datagram.bytes } } }.join()
            }
            try await suspendUntil("all are delivered") { first.value.count + second.value.count == 4 }
            sender.send([4])
            try await suspendUntil("the next one is delivered") { second.value.last == 4 }
            #expect(first.value == [0] && second.value == [1, 2, 3, 4])
        }
    }

    #if os(Linux)
    /// Its memory for batches outlives the thread then, which AddressSanitizer would report.
    @Test(.enabled(if: !isUnderAddressSanitizer))
    func `a process that has no key for a thread's memory left receives, and another library's key keeps its value`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop)
                let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, mode: .never)
                let bytes = Box<[UInt8]>([])
                receiver.onReceive { _, datagram in bytes.value = datagram.bytes }
                _ = loop.run(for: .zero)
                var key = pthread_key_t()
                while pthread_key_create(&key, nil) == 0 {}  // ends: a process has 1,024 keys
                let before = pthread_getspecific(0)
                sender.send([7])
                try waitUntil("it arrives") {
                    _ = loop.run(for: .milliseconds(10))
                    return bytes.value == [7]
                }
                let after = pthread_getspecific(0)
                #expect(before == after)
                for socket in [receiver, sender] { socket.close() }
            }
        }
    }
    #endif

    enum Answer: CaseIterable { case send, sendOfAnotherThread, write }

    @Test(arguments: Answer.allCases, [RunLoop.Mode.default, "datagrams.other"])
    func `a handler that runs its loop sends what the other side waits for`(answer: Answer, mode: RunLoop.Mode) async throws {
        try await withSockets { loop, _ in
            let server = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let client = try DatagramSocket(connectedTo: server.localAddress, on: loop, mode: mode)
            let answered = Box(0)
            client.onReceive { _, _ in answered.increment() }
            let isOver = Box(false)
            server.onReceive { socket, datagram in
                guard datagram.bytes == [0] else { return }
                switch answer {
                case .send: socket.send([9], to: datagram.peer)
                case .sendOfAnotherThread: _ = plainThread { socket.send([9], to: datagram.peer) }
                case .write: Task.detached { try await socket.write([9], to: datagram.peer) }
                }
                while answered.value == 0 { _ = loop.run(mode: mode, for: .milliseconds(10)) }  // ends: the answer arrives
                isOver.value = true
            }
            // The socket of the server is read when several wait, so that what the handler sends is gathered.
            loop.perform { for number in 0..<4 { client.send([UInt8(number)]) } }
            try await suspendUntil("the handler returns") { isOver.value }
            try await suspendUntil("the others are delivered") { server.statistics.received == 4 }
        }
    }

    @Test func `while a handler works, what others write arrives`() async throws {
        try await withSockets { loop, _ in
            let server = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let client = try DatagramSocket(connectedTo: server.localAddress, on: loop, mode: .never)
            let (entered, mayGoOn) = (Gate(), Gate())
            server.onReceive { _, datagram in
                guard datagram.bytes == [0] else { return }
                entered.open()
                mayGoOn.wait()
            }
            loop.perform { for number in 0..<4 { client.send([UInt8(number)]) } }
            try await entered.waitInTask()
            try await server.write([9], to: client.localAddress)
            try await suspendUntil("it arrives") { client.takeFromKernel() == [9] }
            mayGoOn.open()
        }
    }

    @Test(arguments: [Family.ipv4, .unix]) func `a datagram may have any size if the socket says so`(family: Family) async throws {
        try await withSockets { loop, directory in
            var options = DatagramSocket.Options()
            options.maximumSize = .max
            let receiver = try DatagramSocket(boundTo: family.address("receiver", in: directory), on: loop, options: options)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
            sender.send([1, 2, 3])
            var datagrams = receiver.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [1, 2, 3])
        }
    }

    #if os(Linux)
    /// The thread that receives would close it, and the close may block (SO_LINGER).
    @Test(.enabled(if: kernelRefusesDescriptors(), "the kernel is older than Linux 6.16"))
    func `a Unix peer sends no descriptors`() async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, mode: .never)
            let errno = sender.withDescriptor { sendDescriptors([$0], with: [1], over: $0) }
            #expect(errno == EPERM)
            try await sender.write([2])
            var datagrams = receiver.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [2])
        }
    }
    #endif

    @Test func `a cancelled reader throws, and no datagram is lost`() async throws {
        try await withSockets { loop, _ in
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
            for number in 0..<50 {
                let reader = Task {
                    var datagrams = receiver.datagrams.makeAsyncIterator()
                    return try await datagrams.next()
                }
                if number % 2 == 0 { await Task.yield() }
                reader.cancel()
                await #expect(throws: CancellationError.self) { try await reader.value }
            }
            sender.send([5])
            var datagrams = receiver.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [5])
        }
    }

    @Test func `handlers and tasks on one socket are a precondition failure`() async {
        await #expect(processExitsWith: .failure) {
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: .main)
            socket.onReceive { _, _ in }
            var datagrams = socket.datagrams.makeAsyncIterator()
            _ = try await datagrams.next()
        }
        await #expect(processExitsWith: .failure) {
            let thread = try RunLoopThread(name: "datagrams")
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: thread.runLoop)
            let sender = try DatagramSocket(connectedTo: socket.localAddress, on: thread.runLoop)
            sender.send([1])
            var datagrams = socket.datagrams.makeAsyncIterator()
            _ = try await datagrams.next()
            socket.onReceive { _, _ in }
        }
    }

    @Test(arguments: [0, -1])
    func `an option that permits nothing is a precondition failure`(value: Int) async {
        await #expect(processExitsWith: .failure) { [value] in
            var options = DatagramSocket.Options()
            options.maximumSize = value
            _ = try DatagramSocket(boundTo: .anyIPv4, on: .main, options: options)
        }
    }
}
