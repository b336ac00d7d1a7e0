// What the tests of CFSocket share: a callback that records, pairs of sockets, and addresses.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc

let streamType = Int32(SOCK_STREAM.rawValue)
let datagramType = Int32(SOCK_DGRAM.rawValue)
let packetsType = Int32(SOCK_SEQPACKET.rawValue)
private let withoutSignal = Int32(MSG_NOSIGNAL)
#else
import Darwin

let streamType = SOCK_STREAM
let datagramType = SOCK_DGRAM
let packetsType = SOCK_SEQPACKET
private let withoutSignal = Int32(0)
#endif

/// The `info` of a recording socket.
final class SocketInfo: Sendable {
    let calls = Trace()
    let retains = Counter()
    let releases = Counter()
    /// What accept callbacks got.
    let connections = Box<[Int32]>([])
    let addresses = Box<[CFData]>([])
    /// Called in each callback, after it was recorded.
    let onCall = Box<(@Sendable (CFSocket, CFSocketCallBackType) -> Void)?>(nil)

    deinit { for connection in connections.value { close(connection) } }

    static func of(_ info: UnsafeRawPointer?) -> SocketInfo { Unmanaged<SocketInfo>.fromOpaque(info!).takeUnretainedValue() }

    var context: CFSocketContext {
        CFSocketContext(
            version: 0, info: Unmanaged.passUnretained(self).toOpaque(),
            retain: {
                SocketInfo.of($0).retains.increment()
                return UnsafeRawPointer(Unmanaged<SocketInfo>.fromOpaque($0!).retain().toOpaque())
            },
            release: {
                SocketInfo.of($0).releases.increment()
                Unmanaged<SocketInfo>.fromOpaque($0!).release()
            }, copyDescription: nil)
    }
}

private func record(
    _ socket: CFSocket?, _ type: CFSocketCallBackType, _ address: CFData?, _ data: UnsafeRawPointer?, _ info: UnsafeMutableRawPointer?
) {
    let info = SocketInfo.of(info)
    if let address { info.addresses.change { $0.append(address) } }
    switch type {
    case .readCallBack: info.calls.add("read")
    case .writeCallBack: info.calls.add("write")
    case .dataCallBack:
        info.calls.add("data:" + text(Unmanaged<CFData>.fromOpaque(data!).takeUnretainedValue()))
    case .acceptCallBack:
        let connection = data!.assumingMemoryBound(to: CFSocketNativeHandle.self).pointee
        info.connections.change { $0.append(connection) }
        info.calls.add("accept")
    case .connectCallBack:
        info.calls.add(data.map { "connect:\($0.assumingMemoryBound(to: Int32.self).pointee)" } ?? "connect")
    default: info.calls.add("type \(type.rawValue)")
    }
    info.onCall.value?(socket!, type)
}

func text(_ data: CFData) -> String {
    String(decoding: UnsafeBufferPointer(start: CFDataGetBytePtr(data), count: CFDataGetLength(data)), as: UTF8.self)
}

func data(_ text: String) -> CFData {
    var text = text
    return text.withUTF8 { CFDataCreate(nil, $0.baseAddress, $0.count) }
}

func recordingSocket(_ native: Int32, _ types: CFSocketCallBackType, _ info: SocketInfo) -> CFSocket {
    var context = info.context
    return CFSocketCreateWithNative(nil, native, types.rawValue, record, &context)
}

func recordingSocket(family: Int32, type: Int32 = streamType, _ types: CFSocketCallBackType, _ info: SocketInfo) throws -> CFSocket {
    var context = info.context
    return try #require(CFSocketCreate(nil, family, type, 0, types.rawValue, record, &context))
}

/// A socket that listens on the loopback interface.
func listeningSocket(_ address: CFData, _ types: CFSocketCallBackType, _ info: SocketInfo) throws -> CFSocket {
    var context = info.context
    var signature = CFSocketSignature(
        protocolFamily: family(of: address), socketType: streamType, protocol: 0, address: .passUnretained(address))
    return try #require(CFSocketCreateWithSocketSignature(nil, &signature, types.rawValue, record, &context))
}

@discardableResult
func attach(_ socket: CFSocket, to loop: CFRunLoop, _ mode: CFRunLoopMode = kCFRunLoopDefaultMode) throws -> CFRunLoopSource {
    let source = try #require(CFSocketCreateRunLoopSource(nil, socket, 0))
    CFRunLoopAddSource(loop, source, mode)
    return source
}

/// One pass, which does not wait. Whether a source was handled.
func pass(_ mode: CFRunLoopMode = kCFRunLoopDefaultMode) -> Bool { CFRunLoopRunInMode(mode, 0, true) == .handledSource }

/// Runs until a source was handled.
func runUntilHandled(_ mode: CFRunLoopMode = kCFRunLoopDefaultMode) {
    #expect(CFRunLoopRunInMode(mode, 1_200, true) == .handledSource)
}

/// Two connected Unix sockets. The number of a closed descriptor is soon another test's, so only the peer can tell whether `native` is closed.
struct SocketPair {
    let native: Int32
    let peer: Int32

    init(_ type: Int32 = streamType) {
        (native, peer) = connectedSockets(type: type)
    }

    func write(_ text: String = "x") { precondition(send(peer, text, text.utf8.count, 0) == text.utf8.count) }

    /// Nothing if `native` is closed.
    func writeIfOpen(_ text: String) { _ = send(peer, text, text.utf8.count, withoutSignal) }

    func nativeIsClosed(_ expected: Bool = true) -> Bool { otherEndIsClosed(peer, expected: expected) }
}

// MARK: Addresses

enum Family: CaseIterable, Sendable { case ipv4, ipv6, unix }

/// An address to listen on: a free port of the loopback interface, or a new path.
func freeAddress(_ family: Family) -> CFData {
    switch family {
    case .ipv4:
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return data(of: &address)
    case .ipv6:
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_addr = in6addr_loopback
        return data(of: &address)
    case .unix:
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let path = "/tmp/eventloop-cfsocket-\(getpid())-\(paths.increment())"
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        return data(of: &address)
    }
}

private let paths = Counter()

private func data<Address>(of address: inout Address) -> CFData {
    withUnsafeBytes(of: &address) { CFDataCreate(nil, $0.bindMemory(to: UInt8.self).baseAddress, $0.count) }
}

func family(of address: CFData) -> Int32 {
    UnsafeRawPointer(CFDataGetBytePtr(address)!).withMemoryRebound(to: sockaddr.self, capacity: 1) { Int32($0.pointee.sa_family) }
}

/// Removes the file of a Unix address.
func forget(_ address: CFData) {
    guard family(of: address) == AF_UNIX else { return }
    // The kernel gives no more bytes than the path has, so this is not a whole `sockaddr_un`.
    let bytes = UnsafeBufferPointer(start: CFDataGetBytePtr(address), count: CFDataGetLength(address))
    unlink(String(decoding: bytes.dropFirst(2).prefix { $0 != 0 }, as: UTF8.self))
}

/// An address that is taken, where nobody listens: connections are refused, and no other test gets it.
final class DeadAddress: Sendable {
    let address: CFData
    private let native: Int32

    init(_ family: Family) throws {
        let free = freeAddress(family)
        let native = socket(EventLoopCFTests.family(of: free), streamType, 0)
        self.native = native
        let result = UnsafeRawPointer(CFDataGetBytePtr(free)!).withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(native, $0, socklen_t(CFDataGetLength(free)))
        }
        precondition(result == 0, "bind: errno \(errno)")
        let object = recordingSocket(native, [], SocketInfo())
        CFSocketSetSocketFlags(object, 0)
        address = try #require(CFSocketCopyAddress(object))
    }

    deinit {
        close(native)
        forget(address)
    }
}

/// Takes what has been received.
func received(_ native: Int32) -> String {
    var buffer = [UInt8](repeating: 0, count: 100)
    return String(decoding: buffer[..<max(recv(native, &buffer, buffer.count, 0), 0)], as: UTF8.self)
}

/// A plain socket that is connected to `address`.
func connectedSocket(_ address: CFData) -> Int32 {
    let native = socket(family(of: address), streamType, 0)
    precondition(fcntl(native, F_SETFD, FD_CLOEXEC) == 0)
    precondition(connectNative(native, address) == 0, "connect: errno \(errno)")
    return native
}

/// connect(2).
func connectNative(_ native: Int32, _ address: CFData) -> Int32 {
    UnsafeRawPointer(CFDataGetBytePtr(address)!).withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(native, $0, socklen_t(CFDataGetLength(address)))
    }
}
