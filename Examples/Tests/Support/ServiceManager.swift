// A service manager's end of the notification socket.

public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Receives notifications in a socket with a path.
public final class ServiceManager: Sendable {
    private let folder = makeTemporaryDirectory(in: "/tmp")
    private let descriptor: Int32
    public var path: String { folder + "/notify" }

    public init() throws {
        descriptor = socket(AF_UNIX, datagramType, 0)
        guard descriptor >= 0 else { throw SystemFailure("socket") }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        let code = withUnixAddress(path) { bind(descriptor, $0, $1) }
        guard code == 0 else { throw SystemFailure("bind \(path)") }
    }

    deinit {
        _ = close(descriptor)
        removeFlatDirectory(folder)
    }

    /// The notifications that have arrived.
    public func received() -> [String] {
        var all: [String] = []
        var buffer = [UInt8](repeating: 0, count: 8_192)
        while case let count = recv(descriptor, &buffer, buffer.count, Int32(dontWait)), count >= 0 {  // ends: the queue is finite
            all.append(String(decoding: buffer[..<count], as: UTF8.self))
        }
        return all
    }

    /// Suspends until the notification arrives, and drops those before it.
    public func hear(_ notification: String, _ location: SourceLocation = #_sourceLocation) async throws {
        try await suspendUntil("the notification \(notification)", location) { self.received().contains(notification) }
    }
}

#if canImport(Glibc)
// Of the module that owns `sys/socket.h`, whichever that is.
private let dontWait = 0x40
#else
private let dontWait = MSG_DONTWAIT
#endif
