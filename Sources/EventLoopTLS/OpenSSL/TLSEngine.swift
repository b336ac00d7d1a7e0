// TLS for one stream: encrypted bytes on one side, the program's bytes on the other. It does no input or output itself.
//
// Lifecycle of an SSL object: an engine creates it for its stream, and frees it in its deinit. The stream calls the engine under its lock, so
// one thread at a time uses the SSL object, which OpenSSL demands. After a fatal error it is not used any more.

#if TLS

internal import COpenSSL
internal import EventLoop
internal import EventLoopStreams

final class TLSEngine: StreamLayer, @unchecked Sendable {
    // SAFETY: the stream calls the members of StreamLayer under its lock; `negotiated` and `failure` have a lock of their own.

    let connection: OpaquePointer
    /// Kept alive for the callback that selects the application protocol.
    private let context: TLSContext
    let encrypted = EncryptedBytes()
    private let serverName: String?
    /// Where a client keeps its sessions; nil if it does not.
    private let store: (TLSSessionStore, TLSSessionStore.Key)?

    private(set) var handshake: LayerHandshake = .inProgress
    private var hasBegun = false
    /// The program writes no more: close_notify is sent, or will be after the handshake.
    private var hasFinishedWriting = false
    /// Bytes for the peer that reading produced: answers to key updates. A peer that asks for them and does not read them makes the
    /// stream hold them, so their number is limited.
    private var answeredBytes = 0
    private var plainBytesReceived = 0
    private(set) var mayHaveMore = false
    /// Without this many answers, nothing is suspicious.
    private static let answerAllowance = 4_096
    /// Messages of the handshake protocol since the last plain byte: key updates and tickets, which cost their sender less than this side.
    private var messagesWithoutBytes = 0
    private static let messageLimit = 32

    /// RFC 8446, section 5.5: AES-GCM allows 2^24.5 records under one key. OpenSSL does not count them.
    var recordsPerKey = 1 << 24
    private var recordsUnderKey = 0

    /// What other threads ask for, without the stream's lock.
    private let shared = LoopLock(Shared())
    private struct Shared {
        var session: TLSSession?
        var failure: TLSError?
    }

    /// What the handshake agreed on; nil before its end.
    var session: TLSSession? { shared.withLock { $0.session } }
    /// What ended the connection; nil if nothing has.
    var failure: TLSError? { shared.withLock { $0.failure } }

    /// - Parameter configure: sets what differs between the sides, before the handshake.
    init(
        _ context: TLSContext, serverName: String?, store: (TLSSessionStore, TLSSessionStore.Key)? = nil,
        configure: (OpaquePointer) throws(TLSError) -> Void
    ) throws(TLSError) {
        ERR_clear_error()
        guard let connection = SSL_new(context.raw) else { throw TLSError.configuration("no connection of OpenSSL") }
        (self.context, self.connection, self.serverName, self.store) = (context, connection, serverName, store)
        // From here on, a throw runs deinit.
        guard let bio = encrypted.makeBIO() else { throw TLSError.configuration("no BIO of OpenSSL") }
        // Reading and writing use the same BIO, and own one reference to it.
        SSL_set_bio(connection, bio, bio)
        try configure(connection)
        // The engine outlives its connection.
        SSL_set_ex_data(connection, 0, Unmanaged.passUnretained(self).toOpaque())
        SSL_set_msg_callback(connection) { isSent, _, kind, _, _, connection, _ in
            guard isSent == 0, kind == SSL3_RT_HANDSHAKE, let connection else { return }
            TLSEngine.of(connection)?.noteMessage()
        }
        guard let store else { return }
        // If OpenSSL refuses it, the handshake is a full one.
        if let session = store.0.take(for: store.1) { SSL_set_session(connection, session.raw) }
        ERR_clear_error()
    }

    deinit {
        // Otherwise OpenSSL takes the session of a connection that ends without close_notify for a bad one, and locks the context to say so. A fatal
        // alert has marked it before.
        SSL_set_shutdown(connection, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)
        SSL_free(connection)
    }

    static func of(_ connection: OpaquePointer) -> TLSEngine? {
        // SAFETY: `init` stored it, and it outlives its connection.
        SSL_get_ex_data(connection, 0).map { Unmanaged<TLSEngine>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: Sessions

    /// True if it takes over the reference.
    func remember(_ session: OpaquePointer) -> Bool {
        guard let (store, key) = store, SSL_SESSION_is_resumable(session) == 1 else { return false }
        store.insert(StoredSession(session), for: key)
        return true
    }

    // MARK: From the peer

    /// A message of the handshake protocol has come. OpenSSL reads record after record until one has data, so behind one message too many it gets
    /// no more, and `readRecord` ends the connection.
    private func noteMessage() {
        messagesWithoutBytes += 1
        if case .done = handshake, messagesWithoutBytes > Self.messageLimit { encrypted.isHeldBack = true }
    }

    func begin() {
        guard !hasBegun else { return }
        hasBegun = true
        continueHandshake()
    }

    func receive(_ bytes: UnsafeRawBufferPointer) {
        guard failure == nil, !bytes.isEmpty else { return }
        encrypted.append(bytes)
        continueHandshake()
    }

    var stopsAtMissingEnd: Bool { copenssl_ignores_missing_close_notify(connection) == 0 }

    func receiveEnd() {
        encrypted.hasEnded = true
        continueHandshake()
    }

    private func continueHandshake() {
        guard hasBegun, case .inProgress = handshake else { return }
        ERR_clear_error()
        let result = SSL_do_handshake(connection)
        if result == 1 {
            let session = TLSSession(of: connection)
            shared.withLock { $0.session = session }
            handshake = .done
            messagesWithoutBytes = 0
            // A failure is kept for the next call.
            if hasFinishedWriting { _ = sendCloseNotify() }
        } else if SSL_get_error(connection, result) != SSL_ERROR_WANT_READ {
            let error = fail()
            handshake = .failed(error, error.sourceError)
        }
    }

    func read(into space: UnsafeMutableRawBufferPointer) -> LayerRead {
        mayHaveMore = false
        if let failure { return .failed(failure.sourceError) }
        guard case .done = handshake else { return .nothing }
        var filled = 0
        // Ends: each iteration fills at least one byte. One call of OpenSSL gives one record.
        while filled < space.count {
            let result = readRecord(into: UnsafeMutableRawBufferPointer(rebasing: space[filled...]))
            guard case .bytes(let count) = result else {
                if filled == 0 { return result }
                // An end and a failure are there again when the next call asks.
                mayHaveMore = result != .nothing
                return .bytes(filled)
            }
            filled += count
        }
        mayHaveMore = true
        return .bytes(filled)
    }

    var hasUnreadInput: Bool {
        if failure != nil { return false }
        // OpenSSL holds what it has of a record: SSL_has_pending(3) says so, but for a whole header behind which nothing has come. Then
        // SSL_rstate_string(3) is "RB", for "read body".
        return encrypted.unreadCount > 0 || SSL_has_pending(connection) == 1 || String(cString: SSL_rstate_string(connection)) == "RB"
    }

    private func readRecord(into space: UnsafeMutableRawBufferPointer) -> LayerRead {
        let before = encrypted.output.count
        var count = 0
        ERR_clear_error()
        let result = SSL_read_ex(connection, space.baseAddress, space.count, &count)
        answeredBytes += encrypted.output.count - before
        let isFlood = messagesWithoutBytes > Self.messageLimit
        switch SSL_get_error(connection, result) {
        case SSL_ERROR_NONE where !isFlood:
            plainBytesReceived += count
            messagesWithoutBytes = 0
            return .bytes(count)
        case SSL_ERROR_WANT_READ where !isFlood && answeredBytes <= Self.answerAllowance + plainBytesReceived / 16:
            return .nothing
        case SSL_ERROR_NONE, SSL_ERROR_WANT_READ:
            let what = isFlood ? "sends too many messages without data" : "asks for too many answers"
            return .failed(fail(with: TLSError(.protocolError, "the peer \(what)", serverName: serverName)).sourceError)
        case SSL_ERROR_ZERO_RETURN:
            return .end
        default:
            return .failed(fail().sourceError)
        }
    }

    /// Nothing calls OpenSSL for this connection any more. Its last output is an alert for the peer.
    private func fail(with error: TLSError? = nil) -> TLSError {
        let error = error ?? TLSError(of: connection, serverName: serverName)
        shared.withLock { $0.failure = error }
        return error
    }

    // MARK: To the peer

    @discardableResult
    func write(_ bytes: UnsafeRawBufferPointer) -> LayerWrite {
        if bytes.isEmpty { return .wrote }
        let ready = prepareToWrite()
        if ready != .wrote { return ready }
        recordsUnderKey += (bytes.count - 1) / 16_384 + 1
        if recordsUnderKey > recordsPerKey {
            recordsUnderKey = 0
            updateKeys(requestsPeer: false)
        }
        encrypted.reserveOutput(forPlainBytes: bytes.count)
        var count = 0
        ERR_clear_error()
        // The BIO takes everything.
        let result = SSL_write_ex(connection, bytes.baseAddress, bytes.count, &count)
        if result == 1 && count == bytes.count { return .wrote }
        if result != 1 && SSL_get_error(connection, result) == SSL_ERROR_WANT_READ { return .wantsInput }
        return .failed(fail().sourceError)
    }

    @discardableResult
    func finishWriting() -> LayerWrite {
        if hasFinishedWriting { return .wrote }
        if failure == nil, case .inProgress = handshake {
            hasFinishedWriting = true
            return .wrote
        }
        let ready = prepareToWrite()
        if ready != .wrote { return ready }
        hasFinishedWriting = true
        return sendCloseNotify()
    }

    /// OpenSSL writes nothing while it has half of a message of the handshake protocol, such as a session ticket in two records: it goes on with
    /// that message first.
    private func prepareToWrite() -> LayerWrite {
        if let failure { return .failed(failure.sourceError) }
        guard case .done = handshake, !hasFinishedWriting else {
            return .failed(TLSError(.protocolError, "written outside the connection", serverName: serverName).sourceError)
        }
        if SSL_in_init(connection) == 0 { return .wrote }
        ERR_clear_error()
        let result = SSL_do_handshake(connection)
        if result == 1 { return .wrote }
        if SSL_get_error(connection, result) == SSL_ERROR_WANT_READ { return .wantsInput }
        return .failed(fail().sourceError)
    }

    /// The other direction stays open.
    private func sendCloseNotify() -> LayerWrite {
        ERR_clear_error()
        // 0: sent, and the peer's has not come. Negative: there was a fatal error before.
        if SSL_shutdown(connection) < 0 { return .failed(fail().sourceError) }
        ERR_clear_error()
        return .wrote
    }

    func takeOutput() -> [UInt8] { encrypted.takeOutput() }

    /// New keys for what is sent from now on. With `requestsPeer`, the peer changes its keys too. Does nothing in TLS 1.2.
    func updateKeys(requestsPeer: Bool) {
        guard failure == nil, case .done = handshake else { return }
        ERR_clear_error()
        if SSL_key_update(connection, requestsPeer ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED) == 1 {
            SSL_do_handshake(connection)
        }
        ERR_clear_error()
    }
}

#endif
