// fork while another thread holds a lock (semantics 9.10):
//  - A child can end its use of inherited objects, whatever locks the parent's threads held: in the child, invalidate, remove, cancel,
//    signal, stop and the last release do nothing to the parent's objects, and never wait.
//  - A use that needs such a lock traps with a message.
//  - A lock of the whole process is free in the child.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .serialized, .tags(.memory)) struct ForkedLockTests {
    @Test(arguments: InheritedUse.allCases)
    func `a child ends its use of inherited objects although a thread of the parent held their locks`(use: InheritedUse) async {
        await #expect(processExitsWith: .success) { [use] in
            let thread = try RunLoopThread(name: "parent's")
            let inherited = try use.prepare(thread)
            let end = try whileLocked(thread.runLoop, inherited) {
                inForkedChild {
                    inherited.end()
                    return 0
                }
            }
            #expect(end.status == 0, "\(use): \(end)")
            // The parent's object is unaffected.
            #expect(try plainThread { try thread.runLoop.performAndWait { 42 } }.join() == 42)
            thread.stop()
            await thread.join()
        }
    }

    @Test func `a use that needs a lock that a thread of the parent held traps with a message`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "parent's")
            let source = RunLoop.CustomSource(perform: {})
            let end = try whileLocked(thread.runLoop, Inherited(source: source, end: {})) {
                inForkedChild {
                    source.onInvalidation {}
                    return 0
                }
            }
            #expect(end.signal != 0 && !end.stoodStill, "\(end)")
            #expect(end.errors.contains("in a child of fork"), "\(end.errors)")
            thread.stop()
            await thread.join()
        }
    }

    @Test func `a source that is in no loop works in the child's own loop`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "parent's")
            let (pipe, trace) = (Pipe(), Trace())
            let source = try readSource(pipe) { _ in trace.add(pipe.readAll()) }
            source.onInvalidation { trace.add("invalid") }
            try waitUntilAsleepAfterPass(thread.runLoop)
            let end = inForkedChild {
                // An earlier child that hung may have written to the pipe: see `inForkedChild`.
                pipe.readAll()
                pipe.write("ab")
                do {
                    try onFreshThread { loop in
                        loop.add(source)
                        _ = loop.run(for: .zero)
                        source.invalidate()
                    }
                } catch { return 1 }
                if trace.description == "ab invalid" { return 0 }
                let words = Array("\(trace)".utf8)
                _ = write(STDERR_FILENO, words, words.count)
                return 2
            }
            #expect(end.status == 0, "\(end)")
            #expect(source.isValid)
            thread.stop()
            await thread.join()
        }
    }

    @Test func `a fork waits until the list of loops is consistent`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { _ = $0.run(for: .zero) }
            let (locked, forking) = (EventLoop.Latch(), Box(false))
            let holder = plainThread {
                LoopRegistry.hold()
                locked.open()
                try waitUntil { forking.value }
                for _ in 0..<10_000 { sched_yield() }
                LoopRegistry.release()
            }
            _ = locked.wait(until: nil)
            forking.value = true
            let end = oneForkedChild {
                let answer = try? onFreshThread { loop in loop.run(for: .zero) }
                return answer == nil ? 1 : 0
            }
            try holder.join()
            #expect(end.status == 0, "\(end)")
        }
    }
}

/// An object that a child inherits, the locks of it that are held at the fork, and how the child ends its use of it.
struct Inherited: Sendable {
    var source: RunLoop.Source?
    var connection: RemoteConnection?
    var end: @Sendable () -> Void
}

enum InheritedUse: String, CaseIterable, Codable, Sendable {
    case timer, observer, descriptorSource, customSource, signalSource, processSource, connectingSocket, port, localPort
    case signal, send, sendWithoutRoom
    case removeSource, removeTimer, removeObserver
    case keepAlive, delayedPerform, delayedPerforms, ticks, loopBound
    case thread, group
    case remotePort, lastReleaseOfRemotePort

    func prepare(_ thread: RunLoopThread) throws -> Inherited {
        let loop = thread.runLoop
        switch self {
        case .timer, .removeTimer:
            let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
            loop.add(timer)
            let isRemoved = self == .removeTimer
            return Inherited { if isRemoved { loop.remove(timer) } else { timer.invalidate() } }
        case .observer, .removeObserver:
            let observer = RunLoop.Observer(activities: .exit) { _, _ in }
            loop.add(observer)
            let isRemoved = self == .removeObserver
            return Inherited { if isRemoved { loop.remove(observer) } else { observer.invalidate() } }
        case .descriptorSource:
            let pipe = Pipe()
            return ending(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in _ = pipe }, loop)
        case .customSource: return ending(RunLoop.CustomSource(perform: {}), loop)
        case .signalSource: return ending(try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in }, loop)
        case .processSource:
            let child = systemFork()
            if child == 0 { _exit(0) }
            let source = try RunLoop.ProcessSource(pid: child) { _, _ in }
            // The item is in a mode that does not run, so it stays valid.
            loop.add(source, forMode: .modalPanel)
            return Inherited(source: source) { source.invalidate() }
        case .connectingSocket:
            let address = RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: 9)
            return ending(try RunLoop.SocketSource(connectingTo: address, timeout: patience) { _, _ in }, loop)
        case .port: return ending(RunLoop.Port { _, _ in }, loop)
        case .localPort: return ending(try RunLoop.LocalMessagePort(name: freshName()) { _, _, _ in nil }, loop)
        case .signal:
            let source = RunLoop.CustomSource(perform: {})
            loop.add(source)
            return Inherited(source: source) { source.signal() }
        case .send:
            let port = RunLoop.Port { _, _ in }
            loop.add(port)
            return Inherited(source: port) { try? port.send(RunLoop.PortMessage(id: 1)) }
        case .sendWithoutRoom:
            // The port is in a mode that does not run, so the first message stays queued.
            let port = RunLoop.Port(capacity: 1) { _, _ in }
            loop.add(port, forMode: .modalPanel)
            try port.send(RunLoop.PortMessage(id: 1))
            return Inherited {
                #expect(throws: RunLoop.PortError.invalidPort) { try port.send(RunLoop.PortMessage(id: 2), before: .distantFuture) }
            }
        case .removeSource:
            let source = RunLoop.CustomSource(perform: {})
            loop.add(source)
            return Inherited(source: source) { loop.remove(source) }
        case .keepAlive:
            let alive = Box<RunLoop.KeepAlive?>(loop.keepAlive())
            return Inherited { alive.value = nil }
        case .delayedPerform:
            let token = loop.perform(after: .seconds(10_000), target: loop) {}
            return Inherited { token.cancel() }
        case .delayedPerforms:
            loop.perform(after: .seconds(10_000), target: loop) {}
            return Inherited { loop.cancelDelayedPerforms(target: loop) }
        case .ticks:
            let iterator = Locked<RunLoop.Ticks.AsyncIterator?>(loop.ticks(every: .seconds(1)).makeAsyncIterator())
            return Inherited { iterator.withLock { $0 = nil } }
        case .loopBound:
            let bound = Box<LoopBound<Int>?>(LoopBound(1, to: loop))
            return Inherited { bound.value = nil }
        case .thread:
            return Inherited {
                thread.stop()
                thread.join()
            }
        case .group:
            let group = try RunLoopThreadGroup(count: 2)
            return Inherited { group.shutdown() }
        case .remotePort, .lastReleaseOfRemotePort:
            let local = try RunLoop.LocalMessagePort(name: freshName()) { _, _, _ in nil }
            loop.add(local)
            let remote = try RunLoop.RemoteMessagePort(name: local.name)
            let box = Box<RunLoop.RemoteMessagePort?>(remote)
            let isReleased = self == .lastReleaseOfRemotePort
            return Inherited(connection: remote.connection) { if isReleased { box.value = nil } else { box.value?.invalidate() } }
        }
    }

    private func ending(_ source: RunLoop.Source, _ loop: RunLoop) -> Inherited {
        loop.add(source)
        return Inherited(source: source) { source.invalidate() }
    }
}

/// Calls `body` while another thread holds the locks of the loop and of the inherited object.
private func whileLocked(_ loop: RunLoop, _ inherited: Inherited, _ body: () -> ChildEnd) throws -> ChildEnd {
    let (locked, done) = (EventLoop.Latch(), EventLoop.Latch())
    // What a thread does for the first time may take a lock of the Swift runtime, and no thread of the child releases it. So the loop's thread
    // sleeps at the fork, and the other one has waited before.
    try waitUntilAsleepAfterPass(loop)
    let holder = plainThread {
        @Sendable func hold() {
            loop.shared.withLock { _ in
                _ = done.wait(until: .now.advanced(by: .zero))
                locked.open()
                _ = done.wait(until: .now.advanced(by: patience))
            }
        }
        // The lock order is: a source's lock, then a loop's lock.
        if let source = inherited.source {
            source.state.withLock { _ in hold() }
        } else if let connection = inherited.connection {
            connection.state.withLock { _ in hold() }
        } else {
            hold()
        }
    }
    _ = locked.wait(until: nil)
    let result = body()
    done.open()
    try holder.join()
    return result
}

#endif
