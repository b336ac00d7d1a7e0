// The sessions that a client resumes.
//
// Lifecycle of an SSL_SESSION: OpenSSL counts its references. OpenSSL gives a new one to the context's callback, which takes over a reference; a
// `StoredSession` owns that, and releases it in its deinit.

#if TLS

internal import COpenSSL
internal import EventLoop

/// Shared by a client value and its copies. Thread-safe.
final class TLSSessionStore: Sendable {
    /// Where a session may be resumed: with the server that made it.
    struct Key: Hashable, Sendable {
        let serverName: String?
        let address: String
    }

    /// Servers that are remembered.
    static let limit = 256
    /// Sessions for each. A server sends two at first.
    private static let limitForServer = 4

    private let servers = LoopLock(Servers())
    private struct Servers {
        var sessions: [Key: Entry] = [:]
        var count: UInt64 = 0
    }
    private struct Entry {
        var sessions: [StoredSession] = []
        /// Increases with each use, so the smallest one is evicted.
        var used: UInt64 = 0
    }

    var count: Int { servers.withLock { $0.sessions.count } }

    func insert(_ session: StoredSession, for key: Key) {
        // Released behind the lock.
        var dropped: [StoredSession] = []
        servers.withLock { servers in
            servers.count += 1
            var entry = servers.sessions.removeValue(forKey: key) ?? Entry()
            // An older one of TLS 1.2 adds nothing.
            if !session.isForOneUse || entry.sessions.last?.isForOneUse == false { dropped += entry.sessions; entry.sessions = [] }
            if entry.sessions.count == Self.limitForServer { dropped.append(entry.sessions.removeFirst()) }
            entry.sessions.append(session)
            entry.used = servers.count
            if servers.sessions.count >= Self.limit, let oldest = servers.sessions.min(by: { $0.value.used < $1.value.used }) {
                dropped += oldest.value.sessions
                servers.sessions[oldest.key] = nil
            }
            servers.sessions[key] = entry
        }
    }

    /// The newest one that can be resumed. A ticket of TLS 1.3 is used once (RFC 8446, appendix C.4), so nobody on the way recognizes a client by it.
    func take(for key: Key) -> StoredSession? {
        while true {  // ends: each iteration that goes on has removed a session
            let session: StoredSession? = servers.withLock { servers in
                guard var entry = servers.sessions[key], let session = entry.sessions.last else { return nil }
                servers.count += 1
                entry.used = servers.count
                if session.isForOneUse || !session.isResumable { entry.sessions.removeLast() }
                servers.sessions[key] = entry.sessions.isEmpty ? nil : entry
                return session
            }
            guard let session else { return nil }
            if session.isResumable { return session }
        }
    }
}

final class StoredSession: @unchecked Sendable {
    // SAFETY: OpenSSL counts references atomically, and changes a session of an ended handshake only by marking it as not resumable.
    let raw: OpaquePointer

    /// Takes over the reference.
    init(_ raw: OpaquePointer) { self.raw = raw }

    deinit { SSL_SESSION_free(raw) }

    var isForOneUse: Bool { SSL_SESSION_get_protocol_version(raw) == TLS1_3_VERSION }
    /// False after a fatal alert.
    var isResumable: Bool { SSL_SESSION_is_resumable(raw) == 1 }
}

#endif
