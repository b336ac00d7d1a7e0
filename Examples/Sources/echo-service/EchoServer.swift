// The server of this example: listeners and their connections.

import EventLoop
import EventLoopSupervisor

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Listeners that several loops share: each connection is accepted by one of them, and stays with it.
final class EchoServer: Sendable {
    private let listeners: [RunLoop.SocketSource]

    /// Serves the inherited listeners. If there are none, it opens one of its own.
    init(_ inherited: [RunLoop.InheritedSocket], port: UInt16) throws {
        let listening = inherited.filter { $0.kind == .listener }
        listeners =
            listening.isEmpty
            ? [try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: port), label: "echo", accept: accept)]
            : try listening.map { try RunLoop.SocketSource(adoptingListener: $0.descriptor, label: $0.name, accept: accept) }
    }

    func serve(on loop: RunLoop) { for listener in listeners { loop.add(listener) } }
    func stopListening() { for listener in listeners { listener.invalidate() } }
}

/// On the thread of the loop that accepts.
@Sendable private func accept(_ listener: RunLoop.SocketSource, _ descriptor: Int32, _ peer: RunLoop.SocketAddress) {
    let loop = RunLoop.current
    // The thread's end waits for the client's, up to the drain limit.
    let hold = loop.holdThread()
    do {
        let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read, label: "client") { source, _ in echo(source) }
        source.onInvalidation { _ in
            close(descriptor)
            hold.release()
        }
        loop.add(source)
    } catch {
        // The hold is released with its last reference.
        close(descriptor)
    }
}

private func echo(_ source: RunLoop.DescriptorSource) {
    var bytes = [UInt8](repeating: 0, count: 4_096)
    let count = read(source.descriptor, &bytes, bytes.count)
    if count < 0 && (errno == EAGAIN || errno == EINTR) { return }
    // An example's way with a client that does not read: it loses the connection.
    if count <= 0 || write(source.descriptor, bytes, count) != count { source.invalidate() }
}
