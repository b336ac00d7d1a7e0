// Sockets that no program keeps open that another test starts.

import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Two connected Unix sockets: a stream, or of another type. With a second call for the flag, a process that another test starts in between
/// would keep the ends open.
public func connectedSockets(type: Int32 = 1 /* SOCK_STREAM */) -> (Int32, Int32) {
    var ends: [Int32] = [-1, -1]
    #if os(Linux)
    precondition(socketpair(AF_UNIX, type | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0, "socketpair: errno \(errno)")
    #else
    precondition(socketpair(AF_UNIX, type, 0, &ends) == 0, "socketpair: errno \(errno)")
    for end in ends { precondition(fcntl(end, F_SETFD, FD_CLOEXEC) == 0) }
    #endif
    return (ends[0], ends[1])
}

/// Whether the other end of the socket `peer` is closed. Waits for it if that is expected: a process that another test starts has copies of
/// all descriptors until it executes its program.
public func otherEndIsClosed(_ peer: Int32, expected: Bool = true) -> Bool {
    if expected { try? waitUntilHungUp(peer, "the other end is closed") }
    var request = pollfd(fd: peer, events: 0, revents: 0)
    return poll(&request, 1, 0) == 1 && request.revents & Int16(POLLHUP) != 0
}
