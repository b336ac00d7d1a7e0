// The code of docs/corefoundation.md, compiled and run. DocumentedCodeTests compares each block of the page with this file: change both.

import EventLoopCF
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Counts commands, which other threads announce by a signal.
private final class Commands: Sendable {
    private let pending = Atomic(0)
    let done = Atomic(0)

    func makeSource() -> CFRunLoopSource {
        var context = CFRunLoopSourceContext()
        context.info = Unmanaged.passUnretained(self).toOpaque()
        context.retain = { UnsafeRawPointer(Unmanaged<Commands>.fromOpaque($0!).retain().toOpaque()) }
        context.release = { Unmanaged<Commands>.fromOpaque($0!).release() }
        context.perform = { info in
            let commands = Unmanaged<Commands>.fromOpaque(info!).takeUnretainedValue()
            commands.done.add(commands.pending.exchange(0, ordering: .relaxed), ordering: .relaxed)
            CFRunLoopStop(CFRunLoopGetCurrent())
        }
        return CFRunLoopSourceCreate(kCFAllocatorDefault, 0, &context)
    }

    func add(_ source: CFRunLoopSource, _ runLoop: CFRunLoop) {
        pending.add(1, ordering: .relaxed)
        CFRunLoopSourceSignal(source)
        CFRunLoopWakeUp(runLoop)
    }
}

/// Calls back for each line of the terminal, until its end.
private func watchInput(_ input: CFFileDescriptorNativeDescriptor, _ runLoop: CFRunLoop) {
    let descriptor = CFFileDescriptorCreate(
        kCFAllocatorDefault, input, false,
        { descriptor, _, _ in
            var line = [UInt8](repeating: 0, count: 1_024)
            guard read(CFFileDescriptorGetNativeDescriptor(descriptor), &line, line.count) > 0 else {
                return CFFileDescriptorInvalidate(descriptor)
            }
            CFFileDescriptorEnableCallBacks(descriptor, kCFFileDescriptorReadCallBack)
        }, nil)
    CFFileDescriptorEnableCallBacks(descriptor, kCFFileDescriptorReadCallBack)
    CFRunLoopAddSource(runLoop, CFFileDescriptorCreateRunLoopSource(kCFAllocatorDefault, descriptor, 0), kCFRunLoopDefaultMode)
}

/// Sends back what a connection sends. After its end, which is no data, the socket is invalid.
private let echo: CFSocketCallBack = { socket, _, _, data, _ in
    let received = Unmanaged<CFData>.fromOpaque(data!).takeUnretainedValue()
    if CFDataGetLength(received) > 0 { _ = CFSocketSendData(socket, nil, received, 5) }
}

/// Listens at an address of IPv4, a `struct sockaddr_in`.
private func listen(at address: CFData, _ runLoop: CFRunLoop) -> CFSocket? {
    var signature = CFSocketSignature(protocolFamily: PF_INET, socketType: 0, protocol: 0, address: .passUnretained(address))
    let listener = CFSocketCreateWithSocketSignature(
        kCFAllocatorDefault, &signature, CFSocketCallBackType.acceptCallBack.rawValue,
        { _, _, _, data, _ in
            let connection = data!.load(as: CFSocketNativeHandle.self)
            let types = CFSocketCallBackType.dataCallBack.rawValue
            let socket = CFSocketCreateWithNative(kCFAllocatorDefault, connection, types, echo, nil)
            let source = CFSocketCreateRunLoopSource(kCFAllocatorDefault, socket, 0)
            CFRunLoopAddSource(CFRunLoopGetCurrent(), source, kCFRunLoopDefaultMode)
        }, nil)
    guard let listener else { return nil }
    CFRunLoopAddSource(runLoop, CFSocketCreateRunLoopSource(kCFAllocatorDefault, listener, 0), kCFRunLoopDefaultMode)
    return listener
}

@Suite(.tags(.memory)) struct `Code of the page on Core Foundation's functions` {
    @Test func `another thread announces commands by a signal`() throws {
        try onFreshThread { loop in
            let commands = Commands()
            let source = commands.makeSource()
            CFRunLoopAddSource(CFRunLoopGetCurrent(), source, kCFRunLoopDefaultMode)
            let other = plainThread {
                commands.add(source, loop)
                commands.add(source, loop)
            }
            try other.join()
            CFRunLoopRun()
            #expect(commands.done.load(ordering: .relaxed) == 2)
            CFRunLoopSourceInvalidate(source)
        }
    }

    @Test func `lines of a descriptor, until its end`() throws {
        try onFreshThread { loop in
            var ends: [Int32] = [0, 0]
            #expect(pipe(&ends) == 0)
            watchInput(ends[0], loop)
            #expect(write(ends[1], "line\n", 5) == 5)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            #expect(write(ends[1], "line\n", 5) == 5)
            close(ends[1])
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, false) == .finished)
            close(ends[0])
        }
    }

    @Test func `a connection gets back what it sends`() throws {
        try onFreshThread { loop in
            let listener = try #require(listen(at: freeAddress(.ipv4), loop))
            let client = connectedSocket(CFSocketCopyAddress(listener))
            #expect(send(client, "hello", 5, 0) == 5)
            #expect(shutdown(client, Int32(SHUT_WR)) == 0)
            for _ in 0..<3 { runUntilHandled() }
            #expect(try readToEnd(client, "the echo") == "hello")
            close(client)
            CFSocketInvalidate(listener)
        }
    }
}
