// Rules proved here, about CFSocket, with threads that do everything at once:
// - However a socket ends, its descriptor is closed once, and its `info` is released once.
// - A socket gets no data of another one that has its number afterwards.
// - A child of fork begins with an empty table of sockets, which no thread of its parent has locked.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory, .threads)) struct SocketStormTests {
    @Test(arguments: [CFSocketCallBackType.dataCallBack, .readCallBack, .writeCallBack])
    func `sockets that several threads end while data arrive are closed once, and get no data of others`(type: CFSocketCallBackType) throws
    {
        let loops = (0..<2).map { _ in RunningLoop() }
        let (made, released, strangers) = (Counter(), Counter(), Counter())
        let threads = (0..<3).map { thread in
            plainThread {
                for round in 0..<60 {
                    let (pair, info) = (SocketPair(), SocketInfo())
                    let token = "\(thread).\(round);"
                    made.increment()
                    do {
                        let socket = recordingSocket(pair.native, [type, .writeCallBack], info)
                        info.onCall.value = { socket, _ in
                            if round % 5 == 0 { CFSocketInvalidate(socket) }
                            // The descriptor stays open during a callback, even if another thread has invalidated the socket.
                            if fcntl(pair.native, F_GETFD) < 0 { strangers.increment() }
                        }
                        let source = try attach(socket, to: loops[round % 2].loop)
                        // Nothing if a callback has invalidated it.
                        if round % 3 == 0 { CFRunLoopAddSource(loops[(round + 1) % 2].loop, source, kCFRunLoopDefaultMode) }
                        pair.writeIfOpen(token)
                        switch round % 4 {
                        case 0:
                            let other = plainThread { CFSocketInvalidate(socket) }
                            pair.writeIfOpen(token)
                            CFSocketInvalidate(socket)
                            try other.join()
                        case 1:
                            CFSocketDisableCallBacks(socket, 15)
                            CFSocketEnableCallBacks(socket, 15)
                            CFSocketInvalidate(socket)
                        case 2:
                            for loop in loops { CFRunLoopRemoveSource(loop.loop, source, kCFRunLoopDefaultMode) }
                        default:
                            _ = shutdown(pair.peer, Int32(SHUT_WR))
                            if type != .dataCallBack { CFSocketInvalidate(socket) }
                        }
                    }
                    try waitUntilHungUp(pair.peer, "the socket is closed")
                    close(pair.peer)
                    try waitUntil("info is released") { info.releases.value == 1 }
                    released.increment()
                    let calls = info.calls.list.filter { $0 != "write" && $0 != "read" && $0 != "data:" }
                    if !calls.joined().replacing("data:", with: "").replacing(token, with: "").isEmpty { strangers.increment() }
                }
            }
        }
        for thread in threads { try thread.join() }
        for loop in loops { try loop.end() }
        #expect(made.value == 180 && released.value == 180 && strangers.value == 0)
    }

    @Test func `a listener that is invalidated while clients connect closes what it has accepted and not delivered`() throws {
        let loop = RunningLoop()
        for _ in 0..<20 {
            let (address, info) = (freeAddress(.unix), SocketInfo())
            defer { forget(address) }
            let socket = try listeningSocket(address, .acceptCallBack, info)
            let clients = (0..<10).map { _ in connectedSocket(address) }
            try attach(socket, to: loop.loop)
            try waitUntil("a connection") { !info.calls.list.isEmpty }
            CFSocketInvalidate(socket)
            try waitUntil("info is released") { info.releases.value == 1 }
            for connection in info.connections.value { close(connection) }
            info.connections.value = []
            for client in clients {
                try waitUntilHungUp(client, "the listener is closed")
                close(client)
            }
        }
        try loop.end()
    }

    #if os(Linux)
    @Test(.disabled(if: isUnderThreadSanitizer, "a child inherits locks of the runtime that the storming thread takes again and again"))
    func `a child of fork has an empty table of sockets`() async {
        await #expect(processExitsWith: .success) {
            let (pair, info, isOver) = (SocketPair(), SocketInfo(), Box(false))
            let socket = recordingSocket(pair.native, .readCallBack, info)
            // Makes it likely that the lock is held at a fork.
            let other = plainThread {
                while !isOver.value {
                    let pair = SocketPair()
                    CFSocketInvalidate(recordingSocket(pair.native, [], SocketInfo()))
                    close(pair.peer)
                }
            }
            // The runtime meets every type before the fork.
            #expect(childFindsNothing(pair.native, socket) == 1)
            for _ in 0..<20 {
                let end = inForkedChild { childFindsNothing(pair.native, socket) }
                #expect(end.status == 0, "\(end)")
            }
            isOver.value = true
            try other.join()
            CFSocketInvalidate(socket)
            close(pair.peer)
        }
    }
    #endif
}

/// 0 if `native` gets a new object that is valid.
private func childFindsNothing(_ native: Int32, _ socket: CFSocket) -> Int32 {
    let found: CFSocket = CFSocketCreateWithNative(nil, native, 0, nil, nil)
    if found === socket { return 1 }
    CFSocketSetSocketFlags(found, 0)
    return CFSocketIsValid(found) ? 0 : 2
}
