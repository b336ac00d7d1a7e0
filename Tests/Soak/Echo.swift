// A server on one loop, and clients on another that connect, talk and disconnect, some of them during a conversation.

import EventLoop
import Glibc
import Synchronization

final class Echo: Part, @unchecked Sendable {
    // SAFETY: `start` sets these before the threads have work, and `finish` reads them on the same thread.
    private var listener: RunLoop.SocketSource?
    private let isOver = Atomic(false)
    private let bytes: Account
    private let served: Account
    private let talks: Account

    override init(_ book: Book) {
        bytes = book.account("bytes echoed")
        served = book.account("connections served and closed")
        talks = book.account("connections made and closed")
        super.init(book)
    }

    override func start() throws {
        let (server, clients) = (try thread("echo server"), try thread("echo clients"))
        let loop = server.runLoop
        let listener = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { [self] _, descriptor, _ in
            serve(descriptor, loop)
        }
        self.listener = listener
        loop.add(listener)
        let address = listener.localAddress!  // it listens
        // A connection lives for a moment, so 8 of them leave fewer addresses in use than the kernel has.
        for slot in 0..<8 {
            clients.runLoop.perform { [self] in connect(to: address, clients.runLoop, leavesEarly: slot == 0) }
        }
    }

    override func finish() {
        isOver.store(true, ordering: .relaxed)
        listener?.invalidate()
    }

    private func serve(_ descriptor: Int32, _ loop: RunLoop) {
        served.ask()
        do {
            let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, _ in
                var buffer = [UInt8](repeating: 0, count: 4096)
                let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
                if count < 0 && errno == EAGAIN { return }
                // The bytes that a client sends at once fit into the kernel's buffer.
                if count <= 0 || send(descriptor, buffer, count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT)) != count { source.invalidate() }
            }
            source.onInvalidation { [served] in
                close(descriptor)
                served.finish()
            }
            loop.add(source)
        } catch {
            book.fault("a connection cannot be watched: \(error)")
        }
    }

    private func connect(to address: RunLoop.SocketAddress, _ loop: RunLoop, leavesEarly: Bool) {
        if isOver.load(ordering: .relaxed) { return }
        talks.ask()
        let again: @Sendable () -> Void = { [self] in
            talks.finish()
            loop.perform(after: .milliseconds(.random(in: 20...60))) { [self] in connect(to: address, loop, leavesEarly: leavesEarly) }
        }
        do {
            loop.add(
                try RunLoop.SocketSource(connectingTo: address, timeout: .seconds(60)) { [self] _, result in
                    switch result {
                    case .success(let descriptor): talk(descriptor, loop, leavesEarly: leavesEarly, then: again)
                    case .failure(let error):
                        if !isOver.load(ordering: .relaxed) { book.fault("connect: \(error)") }
                        talks.finish()
                    }
                })
        } catch {
            book.fault("no connection: \(error)")
        }
    }

    private func talk(_ descriptor: Int32, _ loop: RunLoop, leavesEarly: Bool, then next: @escaping @Sendable () -> Void) {
        let (rounds, waiting) = (Number(Int.random(in: 1...10)), Number(0))
        let say: @Sendable () -> Void = { [bytes] in
            let message = [UInt8](repeating: 7, count: .random(in: 16...512))
            waiting.value = message.count
            if !leavesEarly { bytes.ask(message.count) }
            _ = send(descriptor, message, message.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
        }
        do {
            let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read, trigger: .edge) { [bytes] source, _ in
                var buffer = [UInt8](repeating: 0, count: 4096)
                while case let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT)), count > 0 {  // ends: all is read
                    if !leavesEarly { bytes.finish(count) }
                    waiting.value -= count
                }
                guard waiting.value == 0 else { return }
                rounds.value -= 1
                if rounds.value > 0 { say() } else { source.invalidate() }
            }
            source.onInvalidation {
                close(descriptor)
                next()
            }
            loop.add(source)
            say()
            if leavesEarly { source.invalidate() }
        } catch {
            book.fault("a client cannot be watched: \(error)")
        }
    }
}

/// A number that the handlers of one thread change.
final class Number: Sendable {
    private let storage: Atomic<Int>
    init(_ value: Int) { storage = Atomic(value) }
    var value: Int {
        get { storage.load(ordering: .relaxed) }
        set { storage.store(newValue, ordering: .relaxed) }
    }
}
