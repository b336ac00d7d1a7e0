// Helpers of the tests of ports.

import EventLoop
import EventLoopTestSupport

extension RunLoop.Port {
    /// Sends messages with these ids and without components. None of the sends waits for room.
    func send(_ ids: UInt32...) throws {
        for id in ids { try send(RunLoop.PortMessage(id: id)) }
    }
}

extension RunLoop {
    /// Adds a port whose handler writes the ids of its messages into the trace.
    @discardableResult
    func addPort(
        forMode mode: Mode = .default, capacity: Int = 1024, _ trace: Trace, prefix: String = "",
        also body: @escaping @Sendable (Port, PortMessage) -> Void = { _, _ in }
    ) -> Port {
        let port = Port(capacity: capacity) { port, message in
            trace.add("\(prefix)\(message.id)")
            body(port, message)
        }
        add(port, forMode: mode)
        return port
    }
}

/// Two modes that are not common modes.
extension RunLoop.Mode {
    static let first = Self("first"), second = Self("second")
}
