// The two queues of encrypted bytes between a stream and OpenSSL, and the BIO through which OpenSSL uses them.
//
// Lifecycle of a BIO: `EncryptedBytes.makeBIO` creates it, and the SSL object owns and frees it. The engine owns the SSL object and the
// `EncryptedBytes`, and frees the SSL object first. The BIO refers to the `EncryptedBytes` without retaining it.
//
// OpenSSL's own memory BIOs would copy each byte once more, and keep their largest size for the connection's life.

#if TLS

internal import COpenSSL

/// Used by one thread at a time, like the engine that owns it.
final class EncryptedBytes {
    /// From the peer, and not yet read by OpenSSL.
    private var input: [UInt8] = []
    private var inputStart = 0
    /// The peer's last byte has been appended.
    var hasEnded = false
    /// OpenSSL gets nothing more of it.
    var isHeldBack = false
    /// For the peer, and not yet taken by the stream.
    private(set) var output: [UInt8] = []

    var unreadCount: Int { input.count - inputStart }

    func append(_ bytes: UnsafeRawBufferPointer) {
        if inputStart > 0 {
            input.removeFirst(inputStart)
            inputStart = 0
        }
        input.append(contentsOf: bytes)
    }

    func takeOutput() -> [UInt8] {
        let bytes = output
        output = []
        return bytes
    }

    /// For what the program writes: its bytes, and what each record adds.
    func reserveOutput(forPlainBytes count: Int) {
        output.reserveCapacity(output.count + count + (count / 16_384 + 1) * 64)
    }

    fileprivate func read(into space: UnsafeMutableRawBufferPointer) -> Int {
        let count = min(space.count, unreadCount)
        input.withUnsafeBytes { space.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[inputStart..<(inputStart + count)])) }
        inputStart += count
        // An idle connection holds no memory here.
        if inputStart == input.count { (input, inputStart) = ([], 0) }
        return count
    }

    fileprivate func write(_ bytes: UnsafeRawBufferPointer) { output.append(contentsOf: bytes) }

    /// A BIO over these bytes. The result must not outlive this object.
    func makeBIO() -> OpaquePointer? {
        guard let method = Self.method, let bio = BIO_new(method) else { return nil }
        BIO_set_data(bio, Unmanaged.passUnretained(self).toOpaque())
        BIO_set_init(bio, 1)
        return bio
    }

    /// Nil if there was no memory for it.
    // SAFETY: OpenSSL only reads it after its initialization, which Swift does once.
    private nonisolated(unsafe) static let method: OpaquePointer? = {
        guard let method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "EventLoopTLS") else { return nil }
        BIO_meth_set_read(method, readFromPeer)
        BIO_meth_set_write(method, writeToPeer)
        BIO_meth_set_ctrl(method, control)
        return method
    }()
}

private func bytes(of bio: OpaquePointer?) -> EncryptedBytes? {
    // SAFETY: `makeBIO` stored it, and it outlives the BIO.
    BIO_get_data(bio).map { Unmanaged<EncryptedBytes>.fromOpaque($0).takeUnretainedValue() }
}

private func readFromPeer(_ bio: OpaquePointer?, _ space: UnsafeMutablePointer<CChar>?, _ count: CInt) -> CInt {
    copenssl_clear_retry(bio)
    guard let bytes = bytes(of: bio), let space, count > 0 else { return 0 }
    let read = bytes.isHeldBack ? 0 : bytes.read(into: UnsafeMutableRawBufferPointer(start: space, count: Int(count)))
    if read == 0 && (bytes.isHeldBack || !bytes.hasEnded) {
        copenssl_set_retry_read(bio)
        return -1
    }
    return CInt(read)
}

private func writeToPeer(_ bio: OpaquePointer?, _ start: UnsafePointer<CChar>?, _ count: CInt) -> CInt {
    copenssl_clear_retry(bio)
    guard let bytes = bytes(of: bio), let start, count > 0 else { return 0 }
    bytes.write(UnsafeRawBufferPointer(start: start, count: Int(count)))
    return count
}

private func control(_ bio: OpaquePointer?, _ command: CInt, _ number: Int, _ pointer: UnsafeMutableRawPointer?) -> Int {
    switch command {
    case BIO_CTRL_FLUSH: return 1
    case BIO_CTRL_EOF: return bytes(of: bio).map { $0.hasEnded && $0.unreadCount == 0 ? 1 : 0 } ?? 1
    case BIO_CTRL_PENDING: return bytes(of: bio)?.unreadCount ?? 0
    default: return 0
    }
}

#endif
