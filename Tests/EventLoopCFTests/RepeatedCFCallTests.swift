// The rule of RepeatedCallTests, for the callbacks of sources, timers, observers, CFSocket and CFFileDescriptor.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .serialized) struct RepeatedCFCallTests {
    @Test(arguments: RepeatedCallback.allCases)
    func `a later call goes through no more functions than an earlier one, and leaves no memory behind`(callback: RepeatedCallback) async {
        // No other test allocates memory in this process.
        await #expect(processExitsWith: .success) { [callback] in
            let calls = RepeatedCalls()
            try callback.play(calls)
            calls.expectNoGrowth()
        }
    }
}

enum RepeatedCallback: String, CaseIterable, Codable, Sendable {
    case timer, timerHandler, observer, source, schedule, cancel
    case socketRead, socketWrite, socketData, socketAccept, fileDescriptor

    /// Has the library call the callback often enough.
    func play(_ calls: RepeatedCalls) throws {
        switch self {
        case .timer, .timerHandler: try inManualTime { loop, _, _ in playTimer(calls, loop) }
        case .observer: try onFreshThread { loop in playObserver(calls, loop) }
        case .source, .schedule, .cancel: try onFreshThread { loop in playSource(calls, loop) }
        case .socketRead, .socketWrite, .socketData: try onFreshThread { loop in try playSocket(calls, loop) }
        case .socketAccept: try onFreshThread { loop in try playListener(calls, loop) }
        case .fileDescriptor: try onFreshThread { loop in playFileDescriptor(calls, loop) }
        }
    }

    private func playTimer(_ calls: RepeatedCalls, _ loop: CFRunLoop) {
        let fired: @Sendable (CFRunLoopTimer?) -> Void = { timer in
            calls.note()
            if calls.areEnough { CFRunLoopTimerInvalidate(timer) }
        }
        let date = CFAbsoluteTimeGetCurrent()
        let timer =
            self == .timer
            ? CFRunLoopTimerCreate(nil, date, 0.001, 0, 0, { timer, _ in fired(timer) }, nil)
            : CFRunLoopTimerCreateWithHandler(nil, date, 0.001, 0, 0, fired)
        CFRunLoopAddTimer(loop, timer, kCFRunLoopDefaultMode)
        CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, false)
    }

    private func playObserver(_ calls: RepeatedCalls, _ loop: CFRunLoop) {
        let observer = CFRunLoopObserverCreate(
            nil, CFRunLoopActivity.beforeSources.rawValue, true, 0, { _, _, _ in calls.note() }, nil)
        CFRunLoopAddObserver(loop, observer, kCFRunLoopDefaultMode)
        loop.addIdleSource()
        for _ in 0..<calls.total { CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false) }
    }

    private func playSource(_ calls: RepeatedCalls, _ loop: CFRunLoop) {
        var context = CFRunLoopSourceContext(
            version: 0, info: Unmanaged.passUnretained(calls).toOpaque(), retain: nil, release: nil, copyDescription: nil, equal: nil,
            hash: nil,
            schedule: { _, _, _ in if self == .schedule { calls.note() } },
            cancel: { _, _, _ in if self == .cancel { calls.note() } },
            perform: { Unmanaged<RepeatedCalls>.fromOpaque($0!).takeUnretainedValue().note() })
        let source = CFRunLoopSourceCreate(nil, 0, &context)
        if self == .source {
            CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
            calls.make(on: loop) { CFRunLoopSourceSignal(source) }
        } else {
            for _ in 0..<calls.total {
                CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
                CFRunLoopRemoveSource(loop, source, kCFRunLoopDefaultMode)
            }
        }
        CFRunLoopSourceInvalidate(source)
    }

    private func playSocket(_ calls: RepeatedCalls, _ loop: CFRunLoop) throws {
        let type: CFSocketCallBackType =
            switch self {
            case .socketWrite: .writeCallBack
            case .socketData: .dataCallBack
            default: .readCallBack
            }
        let pair = SocketPair()
        defer { close(pair.peer) }
        let callout: CFSocketCallBack = { socket, type, _, _, _ in
            calls.note()
            if type == .readCallBack { _ = received(CFSocketGetNative(socket)) }
        }
        let socket = CFSocketCreateWithNative(nil, pair.native, type.rawValue, callout, nil)
        try attach(socket!, to: loop)
        calls.make(on: loop) {
            if type == .writeCallBack { CFSocketEnableCallBacks(socket, type.rawValue) } else { pair.write() }
        }
        CFSocketInvalidate(socket)
    }

    private func playListener(_ calls: RepeatedCalls, _ loop: CFRunLoop) throws {
        let address = freeAddress(.unix)
        defer { forget(address) }
        let callout: CFSocketCallBack = { _, _, _, connection, _ in
            calls.note()
            close(connection!.assumingMemoryBound(to: CFSocketNativeHandle.self).pointee)
        }
        var signature = CFSocketSignature(
            protocolFamily: family(of: address), socketType: streamType, protocol: 0, address: .passUnretained(address))
        let types = CFSocketCallBackType.acceptCallBack.rawValue
        let socket = CFSocketCreateWithSocketSignature(nil, &signature, types, callout, nil)
        try attach(socket!, to: loop)
        calls.make(on: loop) { close(connectedSocket(address)) }
        CFSocketInvalidate(socket)
    }

    private func playFileDescriptor(_ calls: RepeatedCalls, _ loop: CFRunLoop) {
        let pipe = Pipe()
        let callout: CFFileDescriptorCallBack = { _, _, _ in
            calls.note()
            pipe.readAll()
        }
        let descriptor = CFFileDescriptorCreate(nil, pipe.readEnd, false, callout, nil)
        CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
        calls.make(on: loop) {
            CFFileDescriptorEnableCallBacks(descriptor, kCFFileDescriptorReadCallBack)
            pipe.write()
        }
        CFFileDescriptorInvalidate(descriptor)
    }
}
