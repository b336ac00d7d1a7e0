// Rules proved here, about CFFileDescriptor:
// - A callback is called once each time that it is enabled, with the types that are ready.
// - The object has one source, which retains it. It is released with the last reference to both.
// - Invalidating ends the source, releases `info`, and closes the descriptor if that was asked for. No callback follows.
// - A descriptor that other code has closed invalidates the object, and is not closed again.

import EventLoop
import EventLoopCF
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private final class Info: Sendable {
    let calls = Trace()
    let releases = Counter()
    static func of(_ info: UnsafeMutableRawPointer?) -> Info { Unmanaged<Info>.fromOpaque(info!).takeUnretainedValue() }
}

/// Records the types of each call in `info`, which the object retains.
private func makeDescriptor(_ native: Int32, _ info: Info, closes: Bool = false) -> CFFileDescriptor? {
    var context = CFFileDescriptorContext(
        version: 0, info: Unmanaged.passUnretained(info).toOpaque(),
        retain: { Unmanaged<Info>.fromOpaque($0!).retain().toOpaque() },
        release: {
            Info.of($0).releases.increment()
            Unmanaged<Info>.fromOpaque($0!).release()
        }, copyDescription: nil)
    return CFFileDescriptorCreate(nil, native, closes, { _, types, info in Info.of(info).calls.add("\(types)") }, &context)
}

private let (read, write) = (kCFFileDescriptorReadCallBack, kCFFileDescriptorWriteCallBack)

@Suite(.tags(.memory, .threads)) struct FileDescriptorTests {
    @Test func `a callback is called once each time that it is enabled`() throws {
        try onFreshThread { loop in
            let (pipe, info) = (Pipe(), Info())
            let descriptor = try #require(makeDescriptor(pipe.readEnd, info))
            let source = CFFileDescriptorCreateRunLoopSource(nil, descriptor, 5)
            CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
            #expect(CFRunLoopSourceGetOrder(source) == 5)
            pipe.write("data")
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .timedOut)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            // Nobody has read the data.
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .timedOut)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            CFFileDescriptorDisableCallBacks(descriptor, read)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .timedOut)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            #expect(info.calls.description == "1 1")
            CFFileDescriptorInvalidate(descriptor)
        }
    }

    @Test func `a callback gets the types that are ready and enabled, and others stay enabled`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), Info())
            defer { close(pair.peer) }
            let descriptor = try #require(makeDescriptor(pair.native, info, closes: true))
            CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
            CFFileDescriptorEnableCallBacks(descriptor, read | write | 0xF00)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            #expect(info.calls.take() == "2")
            pair.write()
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            #expect(info.calls.take() == "1")
            CFFileDescriptorEnableCallBacks(descriptor, read | write)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            #expect(info.calls.take() == "3")
            CFFileDescriptorInvalidate(descriptor)
        }
    }

    @Test func `enabling on another thread reaches a sleeping loop`() throws {
        try onFreshThread { loop in
            let (pipe, info) = (Pipe(), Info())
            pipe.write("data")
            let descriptor = try #require(makeDescriptor(pipe.readEnd, info))
            CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
            let other = plainThread {
                try waitUntilAsleep(loop)
                CFFileDescriptorEnableCallBacks(descriptor, read)
            }
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            try other.join()
            CFFileDescriptorInvalidate(descriptor)
        }
    }

    @Test(arguments: [false, true])
    func `invalidating ends the source, releases info, and closes if asked to`(closes: Bool) throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), Info())
            defer { close(pair.peer) }
            let descriptor = try #require(makeDescriptor(pair.native, info, closes: closes))
            let source = try #require(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0))
            CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
            #expect(CFFileDescriptorGetNativeDescriptor(descriptor) == pair.native)
            var context = CFFileDescriptorContext()
            CFFileDescriptorGetContext(descriptor, &context)
            #expect(context.info == Unmanaged.passUnretained(info).toOpaque())
            CFFileDescriptorInvalidate(descriptor)
            CFFileDescriptorInvalidate(descriptor)
            #expect(!CFFileDescriptorIsValid(descriptor) && !CFRunLoopSourceIsValid(source))
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
            #expect(info.releases.value == 1 && pair.nativeIsClosed(closes) == closes)
            #expect(CFFileDescriptorGetNativeDescriptor(descriptor) == -1)
            CFFileDescriptorGetContext(descriptor, &context)
            #expect(context.info == nil)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            #expect(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0) == nil)
            if !closes { close(pair.native) }
        }
    }

    @Test func `a callback may invalidate its own object`() throws {
        try onFreshThread { loop in
            let (pair, calls) = (SocketPair(), Counter())
            defer { close(pair.peer) }
            pair.write()
            let descriptor = CFFileDescriptorCreate(
                nil, pair.native, true,
                { descriptor, _, _ in
                    calls.increment()
                    CFFileDescriptorInvalidate(descriptor)
                }, nil)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, false) == .finished)
            #expect(calls.value == 1 && pair.nativeIsClosed())
        }
    }

    @Test func `the source is one object, and is made again after it was released`() throws {
        let (pipe, info) = (Pipe(), Info())
        let descriptor = try #require(makeDescriptor(pipe.readEnd, info))
        CFFileDescriptorEnableCallBacks(descriptor, read)
        do {
            let source = CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0)
            #expect(source === CFFileDescriptorCreateRunLoopSource(nil, descriptor, 1))
        }
        try onFreshThread { loop in
            CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
            pipe.write("data")
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource)
            #expect(info.calls.description == "1")
        }
        CFFileDescriptorInvalidate(descriptor)
    }

    @Test func `the last release closes the descriptor and releases info`() throws {
        let (unused, used, info) = (SocketPair(), SocketPair(), Info())
        defer { for pair in [unused, used] { close(pair.peer) } }
        do { _ = makeDescriptor(unused.native, info, closes: true) }
        #expect(info.releases.value == 1 && unused.nativeIsClosed())
        try onFreshThread { loop in
            let source = CFFileDescriptorCreateRunLoopSource(nil, makeDescriptor(used.native, info, closes: true), 0)
            CFRunLoopAddSource(loop, source, kCFRunLoopDefaultMode)
            #expect(info.releases.value == 1)
            CFRunLoopSourceInvalidate(source)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished)
        }
        #expect(info.releases.value == 2 && used.nativeIsClosed())
    }

    @Test func `the descriptor stays open while a loop still watches it for a source that was replaced`() throws {
        let (pair, info, busy) = (SocketPair(), Info(), RunningLoop())
        defer { close(pair.peer) }
        let descriptor = try #require(makeDescriptor(pair.native, info, closes: true))
        let first = try #require(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0))
        CFRunLoopAddSource(busy.loop, first, kCFRunLoopDefaultMode)
        let (isBusy, goOn) = (Gate(), Gate())
        // The loop watches the source when it gets to the closure, and removes it from the kernel's set only after that.
        busy.loop.perform {
            isBusy.open()
            goOn.wait()
        }
        isBusy.wait()
        CFRunLoopSourceInvalidate(first)
        let second = try #require(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0))
        #expect(second !== first)
        CFFileDescriptorInvalidate(descriptor)
        #expect(!CFRunLoopSourceIsValid(second) && !pair.nativeIsClosed(false))
        goOn.open()
        #expect(pair.nativeIsClosed())
        try busy.end()
    }

    /// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `a callback comes although another source's end, which the loop finds when it disables the callback, ends the thread`() throws {
        let (pipes, calls, ending) = ([Pipe(), Pipe()], Counter(), RunLoop.CustomSource {})
        // One of both is called first. The loop learns of the other thread's call when the second one disables its callback.
        let callout: CFFileDescriptorCallBack = { _, _, _ in
            calls.increment()
            _ = try? plainThread { ending.invalidate() }.join()
        }
        let descriptors = pipes.compactMap { CFFileDescriptorCreate(nil, $0.readEnd, false, callout, nil) }
        @Sendable func endThread() { pthread_exit(nil) }
        ending.onInvalidation { endThread() }
        let thread = try RunLoopThread(name: "ends")
        thread.runLoop.perform {
            let loop = RunLoop.current
            loop.add(ending)
            // Both are ready in the next pass.
            for (pipe, descriptor) in zip(pipes, descriptors) {
                CFFileDescriptorEnableCallBacks(descriptor, read)
                CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
                pipe.write()
            }
        }
        #expect(thread.join(timeout: patience))
        #expect(calls.value == 2)
        for descriptor in descriptors { CFFileDescriptorInvalidate(descriptor) }
    }

    @Test func `a descriptor that was closed behind its object invalidates it, and is not closed again`() throws {
        try onFreshThread { loop in
            let (pair, info) = (SocketPair(), Info())
            defer { close(pair.peer) }
            let descriptor = try #require(makeDescriptor(pair.native, info, closes: true))
            CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0), kCFRunLoopDefaultMode)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .timedOut)
            close(pair.native)
            let next = Pipe()
            // The loop finds out when it watches for something else.
            CFFileDescriptorDisableCallBacks(descriptor, read)
            CFFileDescriptorEnableCallBacks(descriptor, read)
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1_200, false) == .finished)
            #expect(!CFFileDescriptorIsValid(descriptor) && info.releases.value == 1)
            next.write("still open")
            #expect(next.readAll() == "still open")
        }
    }

    @Test func `a descriptor that is not open, and a file that cannot be watched, are refused`() throws {
        let info = Info()
        #expect(makeDescriptor(-1, info) == nil)
        #expect(info.releases.value == 0)
        let file = open("/dev/null", O_RDONLY)
        let descriptor = try #require(makeDescriptor(file, info, closes: true))
        #expect(CFFileDescriptorCreateRunLoopSource(nil, descriptor, 0) == nil)
    }

    @Test func `objects have a type of their own`() throws {
        let pipe = Pipe()
        let descriptor = makeDescriptor(pipe.readEnd, Info())
        #expect(CFGetTypeID(descriptor) == CFFileDescriptorGetTypeID() && CFGetTypeID(descriptor) != CFRunLoopSourceGetTypeID())
    }
}
