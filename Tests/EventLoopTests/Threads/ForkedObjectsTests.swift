// fork, and the public objects that the other tests of fork do not have (semantics 9.10): whatever a child does with an object of its parent,
// the child does not hang, and the parent's object works as before. A use that needs the parent's loop may trap with a sentence.

#if os(Linux)

import CLibevent
import EventLoop
import EventLoopCF
import EventLoopObserving
import EventLoopSupervisor
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded, .serialized, .tags(.memory)) struct ForkedObjectsTests {
    enum ChildUse: CaseIterable { case nothing, exit, look, change, release }

    @Test(arguments: ForkedKind.allCases)
    func `a child leaves its parent's object alone, and does not hang`(kind: ForkedKind) async {
        await #expect(processExitsWith: .success) { [kind] in
            let thread = try RunLoopThread(name: "parent's")
            let object = try kind.prepare(thread.runLoop)
            // The parent has used what a child uses: the runtime takes locks at the first use of a type.
            try kind.prepare(thread.runLoop).use()
            for use in ChildUse.allCases {
                try waitUntilAsleepAfterPass(thread.runLoop)
                let end = inForkedChild {
                    switch use {
                    case .nothing: break
                    // In a child, the leak detector does not see what the parent's threads refer to, and reports it.
                    case .exit: if !isUnderAddressSanitizer { Glibc.exit(0) }
                    case .look: object.look()
                    case .change: object.change()
                    case .release: object.release()
                    }
                    return 0
                }
                let isRefused = end.errors.contains("belongs to the parent process") || end.errors.contains("in a child of fork")
                #expect(end.status == 0 || isRefused && !end.stoodStill, "\(kind), \(use): \(end)")
            }
            let works = try object.works()
            #expect(works, "\(kind)")
            object.change()
            object.release()
            thread.stop()
            await thread.join()
        }
    }
}

/// An object of the parent, and what its process does with it.
struct ForkedObject: Sendable {
    var look: @Sendable () -> Void = {}
    var change: @Sendable () -> Void
    var release: @Sendable () -> Void = {}
    /// Whether it still does in the parent what it is for.
    var works: @Sendable () throws -> Bool

    func use() {
        look()
        change()
        release()
    }
}

enum ForkedKind: String, CaseIterable, Codable, Sendable {
    case loop, signalSource, wallTimer, clockChangeSource, listener, guest, roomRequest, manualClock, hold, taskExecutor
    case watchdog, supervisor
    case cfSource, cfTimer, cfObserver, cfFileDescriptor, cfSocket

    func prepare(_ loop: RunLoop) throws -> ForkedObject {
        let calls = Counter()
        switch self {
        case .loop:
            return ForkedObject(
                look: { _ = (loop.isWaiting, loop.currentMode, loop.modes, loop.statistics) },
                change: {
                    loop.wakeUp()
                    loop.perform { calls.increment() }
                }, works: { try loop.performAndWait { true } })
        case .signalSource:
            let source = Box<RunLoop.SignalSource?>(try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in calls.increment() })
            loop.add(source.value!)
            return ForkedObject(
                look: { _ = source.value?.details }, change: { source.value?.invalidate() }, release: { source.value = nil },
                works: {
                    letThrough(SIGUSR1)
                    raiseHere(SIGUSR1)
                    return try calls.hasRisen()
                })
        case .wallTimer:
            let source = Box<RunLoop.WallTimer?>(try RunLoop.WallTimer(fireAt: .distantFuture) { _ in calls.increment() })
            loop.add(source.value!)
            return ForkedObject(
                look: { _ = source.value?.nextFire }, change: { source.value?.nextFire = .distantFuture }, release: { source.value = nil },
                works: {
                    source.value?.nextFire = .now
                    return try calls.hasRisen()
                })
        case .clockChangeSource:
            let source = Box<RunLoop.ClockChangeSource?>(try RunLoop.ClockChangeSource { _, _ in })
            loop.add(source.value!)
            return ForkedObject(
                look: { _ = source.value?.isValid }, change: { source.value?.invalidate() }, release: { source.value = nil },
                works: { source.value?.isValid == true && loop.contains(source.value!) })
        case .listener:
            let source = Box<RunLoop.SocketSource?>(
                try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in
                    close(descriptor)
                    calls.increment()
                })
            loop.add(source.value!)
            let address = try #require(source.value?.localAddress)
            return ForkedObject(
                look: { _ = (source.value?.localAddress, source.value?.isAccepting) }, change: { source.value?.invalidate() },
                release: { source.value = nil },
                works: {
                    let client = try RunLoop.SocketSource(connectingTo: address, timeout: patience) { _, _ in }
                    loop.add(client)
                    return try calls.hasRisen()
                })
        case .guest:
            let pipe = Pipe()
            let source = Box<RunLoop.GuestLoop?>(
                try RunLoop.GuestLoop(descriptor: pipe.readEnd) {
                    pipe.readAll()
                    calls.increment()
                })
            loop.add(source.value!)
            return ForkedObject(
                look: { _ = source.value?.isValid }, change: { source.value?.invalidate() }, release: { source.value = nil },
                works: {
                    pipe.write("x")
                    return try calls.hasRisen()
                })
        case .roomRequest:
            // The port is in a mode that does not run until the end, so its queue stays full.
            let port = RunLoop.Port(capacity: 1) { _, _ in }
            loop.add(port, forMode: .modalPanel)
            try port.send(RunLoop.PortMessage(id: 1))
            let request = Box<RunLoop.RoomRequest?>(port.whenRoom(on: loop) { calls.increment() })
            return ForkedObject(
                look: { _ = request.value?.isValid }, change: { request.value?.cancel() }, release: { request.value = nil },
                works: {
                    loop.perform { _ = loop.run(mode: .modalPanel, for: .zero) }
                    return try calls.hasRisen()
                })
        case .manualClock:
            let clock = Box<RunLoop.ManualClock?>(RunLoop.ManualClock())
            return ForkedObject(
                look: { _ = clock.value?.now }, change: { clock.value?.advance(by: .seconds(1)) }, release: { clock.value = nil },
                works: { clock.value?.now.nanoseconds == 0 })
        case .hold:
            let hold = Box<RunLoopThread.Hold?>(loop.holdThread())
            return ForkedObject(
                look: { _ = hold.value?.isValid }, change: { hold.value?.release() }, release: { hold.value = nil },
                works: { hold.value?.isValid == true })
        case .taskExecutor:
            return ForkedObject(
                change: { Task(executorPreference: loop) { calls.increment() } },
                works: {
                    Task(executorPreference: loop) { calls.increment() }
                    return try calls.hasRisen()
                })
        case .watchdog:
            let watchdog = Box<RunLoop.Watchdog?>(RunLoop.Watchdog(threshold: .milliseconds(10)) { _ in calls.increment() })
            watchdog.value!.watch(loop)
            return ForkedObject(
                look: { watchdog.value?.stopWatching(loop) }, change: { watchdog.value?.invalidate() }, release: { watchdog.value = nil },
                works: {
                    watchdog.value!.watch(loop)
                    loop.perform {
                        while calls.value == 0 {}  // ends: with the report
                    }
                    return try calls.hasRisen()
                })
        case .supervisor:
            let supervisor = Box<RunLoop.Supervisor?>(try RunLoop.Supervisor(environment: [:]))
            return ForkedObject(
                look: { _ = (supervisor.value?.isPresent, supervisor.value?.sockets) }, change: { try? supervisor.value?.notifyReady() },
                release: { supervisor.value = nil }, works: { supervisor.value?.isPresent == false })
        case .cfSource:
            var context = CFRunLoopSourceContext()
            context.perform = { _ in }
            let source = Box<CFRunLoopSource?>(CFRunLoopSourceCreate(nil, 0, &context))
            CFRunLoopAddSource(loop, source.value, kCFRunLoopDefaultMode)
            return ForkedObject(
                look: { _ = CFRunLoopSourceIsValid(source.value) },
                change: {
                    CFRunLoopSourceSignal(source.value)
                    CFRunLoopSourceInvalidate(source.value)
                }, release: { source.value = nil },
                works: { CFRunLoopSourceIsValid(source.value) && CFRunLoopContainsSource(loop, source.value, kCFRunLoopDefaultMode) })
        case .cfTimer:
            let timer = Box<CFRunLoopTimer?>(CFRunLoopTimerCreateWithHandler(nil, .infinity, 0, 0, 0) { _ in calls.increment() })
            CFRunLoopAddTimer(loop, timer.value, kCFRunLoopDefaultMode)
            return ForkedObject(
                look: { _ = CFRunLoopTimerGetNextFireDate(timer.value) },
                change: {
                    CFRunLoopTimerSetNextFireDate(timer.value, CFAbsoluteTimeGetCurrent() + 1_000_000)
                    CFRunLoopTimerInvalidate(timer.value)
                }, release: { timer.value = nil },
                works: {
                    CFRunLoopTimerSetNextFireDate(timer.value, CFAbsoluteTimeGetCurrent())
                    return try calls.hasRisen()
                })
        case .cfObserver:
            let every: CFOptionFlags = 0x0FFF_FFFF
            let observer = Box<CFRunLoopObserver?>(
                CFRunLoopObserverCreateWithHandler(nil, every, true, 0) { _, _ in calls.increment() })
            CFRunLoopAddObserver(loop, observer.value, kCFRunLoopDefaultMode)
            return ForkedObject(
                look: { _ = CFRunLoopObserverGetActivities(observer.value) }, change: { CFRunLoopObserverInvalidate(observer.value) },
                release: { observer.value = nil },
                works: {
                    loop.wakeUp()
                    return try calls.hasRisen()
                })
        case .cfFileDescriptor:
            let pipe = Pipe()
            let descriptor = Box<CFFileDescriptor?>(CFFileDescriptorCreate(nil, pipe.readEnd, false, { _, _, _ in }, nil))
            CFRunLoopAddSource(loop, CFFileDescriptorCreateRunLoopSource(nil, descriptor.value, 0), kCFRunLoopDefaultMode)
            return ForkedObject(
                look: { _ = CFFileDescriptorGetNativeDescriptor(descriptor.value) },
                change: {
                    CFFileDescriptorEnableCallBacks(descriptor.value, kCFFileDescriptorReadCallBack)
                    CFFileDescriptorInvalidate(descriptor.value)
                }, release: { descriptor.value = nil },
                works: {
                    _ = pipe
                    return CFFileDescriptorIsValid(descriptor.value)
                })
        case .cfSocket:
            let (native, peer) = connectedSockets()
            let socket = Box<CFSocket?>(CFSocketCreateWithNative(nil, native, 0, { _, _, _, _, _ in }, nil))
            CFRunLoopAddSource(loop, CFSocketCreateRunLoopSource(nil, socket.value, 0), kCFRunLoopDefaultMode)
            return ForkedObject(
                look: { _ = (CFSocketGetNative(socket.value), CFSocketCopyPeerAddress(socket.value)) },
                change: {
                    CFSocketDisableCallBacks(socket.value, 1)
                    CFSocketInvalidate(socket.value)
                }, release: { socket.value = nil },
                works: {
                    var byte: UInt8 = 0
                    // A child that closes its copy ends nothing.
                    return CFSocketIsValid(socket.value) && recv(peer, &byte, 1, Int32(MSG_DONTWAIT)) == -1 && errno == EAGAIN
                })
        }
    }
}

extension Counter {
    fileprivate func hasRisen() throws -> Bool {
        try waitUntil("the object works in the parent") { value > 0 }
        return true
    }
}

#endif
