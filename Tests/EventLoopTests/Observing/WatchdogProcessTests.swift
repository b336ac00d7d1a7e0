// Rules proved here (semantics 23.4, 23.6 to 23.10), most in a process of their own, because signals and threads are the process's:
// - The watchdog's thread makes no step while all watched loops sleep, and looks again when one works. If it could not be started, the next
//   `watch` tries again. If a report ends the thread, another one makes the other reports.
// - The program's signals are not delivered to it.
// - A thread that is blocked in a system call is not disturbed, and its report names the call.
// - The processor time of a blocked thread is far less than the stall.
// - In a forked child the watchdog watches the child's loops.
// - Other code's handlers of the signals stay, and see their own signals only, however late a signal of the watchdog arrives; a thread that
//   blocks both signals gets none.
// - A source that is made while a backtrace is taken makes no cycle of handlers.

import CPlatform
import CStacks
import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

#if os(Linux)
import Glibc

/// The lines of a file of `/proc`.
private func lines(of path: String) -> [Substring] {
    guard let file = fopen(path, "r") else { return [] }
    defer { fclose(file) }
    var text: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while case let count = fread(&buffer, 1, buffer.count, file), count > 0 { text += buffer[..<count] }  // ends: with the file
    return String(decoding: text, as: UTF8.self).split(separator: "\n")
}

private func watchdogThread() -> Int? {
    guard let folder = opendir("/proc/self/task") else { return nil }
    defer { closedir(folder) }
    while let entry = readdir(folder) {  // ends: with the folder
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if let id = Int(name), lines(of: "/proc/self/task/\(id)/comm").first == "watchdog" { return id }
    }
    return nil
}

/// How often the thread has gone to sleep.
private func sleeps(of thread: Int) -> Int {
    let line = lines(of: "/proc/self/task/\(thread)/status").first { $0.hasPrefix("voluntary_ctxt_switches:") }
    return line.flatMap { Int($0.split(separator: "\t").last ?? "") } ?? -1
}

private func waitUntilAsleep(thread: Int) throws {
    try waitUntil("the thread sleeps") {
        lines(of: "/proc/self/task/\(thread)/status").contains { $0.hasPrefix("State:") && $0.contains("S (sleeping)") }
    }
}

/// Runs a loop that nobody watches, whose timer fires every millisecond.
private func passMilliseconds(_ count: Int) throws {
    try onFreshThread { loop in
        let fired = Box(0)
        loop.add(RunLoop.Timer(fireAt: .now, interval: .milliseconds(1)) { _ in if fired.increment() == count { loop.stop() } })
        _ = loop.run(for: patience)
    }
}

/// A thread that computes until the object ends it.
private func whileComputing(_ prepare: @escaping @Sendable () -> Void = {}, _ body: (Int32) throws -> Void) throws {
    let (id, isOver) = (Box<Int32>(0), Box(false))
    let thread = plainThread {
        prepare()
        id.value = cplatform_thread_id()
        while !isOver.value {}
    }
    try waitUntil { id.value != 0 }
    try body(id.value)
    isOver.value = true
    try thread.join()
}

// Glibc's overlay hides it from Swift.
@_silgen_name("vfork") private func systemVfork() -> Int32

/// A thread that blocks no signal and takes none until `end`: in vfork(2) it waits in the kernel for its child's `_exit`.
private final class ThreadInVfork: Sendable {
    let id: Int32
    private let gate = Pipe()
    private let thread: JoinableThread<Void>

    init() throws {
        let (published, descriptor) = (Box<Int32>(0), gate.readEnd)
        thread = plainThread {
            change(SIG_UNBLOCK, [SIGURG])
            published.value = cplatform_thread_id()
            waitInVfork(for: descriptor)
        }
        try waitUntil("the thread is in vfork") {
            lines(of: "/proc/self/task/\(published.value)/status").contains { $0.hasPrefix("State:") && $0.contains("D (disk sleep)") }
        }
        id = published.value
    }

    func end() throws {
        gate.write()
        try thread.join()
    }
}

@inline(never) private func waitInVfork(for descriptor: Int32) {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    let child = systemVfork()
    if child == 0 {
        killLater()
        poll(&entry, 1, -1)
        _exit(0)
    }
    waitpid(child, nil, 0)
}

/// Blocks the loop in a timer's handler until the watchdog has reported it for the `count`th time.
private func stall(_ loop: RunLoop, label: String, _ reports: Box<Int>, _ count: Int) throws {
    let done = Gate()
    loop.add(
        RunLoop.Timer(after: .zero, label: label) { _ in
            do { try waitUntil("the stall is reported") { reports.value == count } } catch { Issue.record(error) }
            done.open()
        })
    done.wait()
}

private func passAStep(of loop: RunLoop) throws { try loop.performAndWait {} }

private func change(_ how: Int32, _ signals: [Int32]) {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    pthread_sigmask(how, &set, nil)
}

/// Takes backtraces until none leaves the watchdog's handler of SIGURG behind. On a busy machine one may, because its signal is late.
private func waitUntilRestored(_ handler: UInt) throws {
    try waitUntil("the earlier handler is restored") {
        try whileComputing({ change(SIG_UNBLOCK, [SIGURG]) }) { thread in _ = Backtrace.lines(of: thread) }
        return installedHandler(of: SIGURG) == handler
    }
}

nonisolated(unsafe) private var urgentSignals = sig_atomic_t(0)  // SAFETY: one thread at a time in a process of one test

@Suite(.bounded, .serialized, .tags(.threads)) struct WatchdogProcessTests {
    @Test func `while the watched loops sleep, the watchdog's thread sleeps, and it wakes when one works`() async {
        await #expect(processExitsWith: .success) {
            let loops = (0..<3).map { _ in RunningLoop() }
            let reported = Box(0)
            let watchdog = RunLoop.Watchdog(threshold: .milliseconds(2)) { if $0.label == "planted" { reported.increment() } }
            for running in loops { watchdog.watch(running.loop) }
            var thread: Int?
            try waitUntil("the thread has its name") {
                thread = watchdogThread()
                return thread != nil
            }
            let id = try #require(thread)
            // On a busy machine the thread may take its time before it sleeps. If it woke up by itself, each of these stretches would see that.
            try waitUntil("the thread sleeps", within: .seconds(60)) {
                let before = sleeps(of: id)
                try passMilliseconds(200)
                return sleeps(of: id) == before
            }
            loops[1].loop.add(
                RunLoop.Timer(after: .zero, label: "planted") { _ in
                    do { try waitUntil { reported.value > 0 } } catch { Issue.record(error) }
                })
            for running in loops { try running.end() }
            #expect(reported.value == 1)
        }
    }

    @Test func `watching a loop again starts the thread that could not be started before`() async {
        await #expect(processExitsWith: .success) {
            let reported = Box(0)
            let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { if $0.label == "planted" { reported.increment() } }
            let running = RunningLoop()
            withoutNewThreads { watchdog.watch(running.loop) }
            #expect(watchdogThread() == nil)
            watchdog.watch(running.loop)
            try stall(running.loop, label: "planted", reported, 1)
            try running.end()
            #expect(reported.value == 1)
        }
    }

    // What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `a report that ends the watchdog's thread leaves the others to another thread, and is not made again`() async {
        await #expect(processExitsWith: .success) {
            let (ended, reported) = (Box(0), Box(0))
            let ending = RunLoop.Watchdog(threshold: .milliseconds(5)) {
                if $0.label != "planted" { return }
                ended.increment()
                endThread()
            }
            let other = RunLoop.Watchdog(threshold: .milliseconds(5)) { if $0.label == "planted" { reported.increment() } }
            let running = RunningLoop()
            ending.watch(running.loop)
            other.watch(running.loop)
            for count in 1...3 {
                let done = Gate()
                running.loop.add(
                    RunLoop.Timer(after: .zero, label: "planted") { _ in
                        do { try waitUntil("both report the stall") { ended.value >= count && reported.value >= count } } catch {
                            Issue.record(error)
                        }
                        done.open()
                    })
                done.wait()
                if reported.value < count { break }
            }
            try running.end()
            #expect(ended.value == 3 && reported.value == 3)
            ending.invalidate()
            other.invalidate()
        }
    }

    @Test func `the watchdog's thread blocks all signals but those that report a fault`() async {
        await #expect(processExitsWith: .success) {
            let blocked = Box<Set<Int32>?>(nil)
            let watchdog = RunLoop.Watchdog(threshold: .milliseconds(1)) { _ in blocked.value = blockedSignals() }
            try onFreshThread { loop in
                // This thread starts the watchdog's, which inherits its mask.
                letThrough(SIGTERM, SIGURG)
                watchdog.watch(loop)
                loop.perform {
                    while blocked.value == nil {}  // ends: with the report
                    loop.stop()
                }
                _ = loop.run(for: patience)
            }
            watchdog.invalidate()
            let all = try #require(blocked.value)
            #expect(all.isSuperset(of: [SIGTERM, SIGURG, SIGUSR1]) && all.isDisjoint(with: faultSignals), "\(all)")
        }
    }

    @Test func `a handler that is blocked in a read is reported and not disturbed`() throws {
        var ends: [Int32] = [-1, -1]
        try #require(closeOnExecPipe(&ends))
        let (reader, writer) = (ends[0], ends[1])
        let running = RunningLoop()
        let stalls = Box<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in
            guard stall.label == "reader" else { return }
            stalls.change { $0.append(stall) }
            #expect(write(writer, "x", 1) == 1)
        }
        watchdog.watch(running.loop)
        try waitUntil { running.loop.hasAdoptedObservation }
        // On a busy machine the thread may be reported before it reads, or be seen so late that the time before counts as used.
        try waitUntil("the thread is reported while it reads, with little processor time") {
            let done = Gate()
            running.loop.add(
                RunLoop.Timer(after: .zero, label: "reader") { _ in
                    var byte: UInt8 = 0
                    errno = 0
                    let count = read(reader, &byte, 1)
                    #expect(count == 1 && byte == UInt8(ascii: "x"), "errno \(errno)")
                    done.open()
                })
            done.wait()
            guard let stall = stalls.value.last else { return false }
            return stall.backtrace.first == "#0 read(\(reader), …)" && stall.processorTime < stall.duration / 2
        }
        try running.end()
        watchdog.invalidate()
        close(reader)
        close(writer)
    }

    @Test func `a handler that computes has had processor time, and the backtrace has its functions`() throws {
        let running = RunningLoop()
        let stalls = Box<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in
            if stall.label == "planted" { stalls.change { $0.append(stall) } }
        }
        watchdog.watch(running.loop)
        try waitUntil { running.loop.hasAdoptedObservation }
        // On a busy machine the thread may get no processor in time to answer.
        try waitUntil("the thread answers") {
            let (done, count) = (Gate(), stalls.value.count)
            running.loop.add(
                RunLoop.Timer(after: .zero, label: "planted") { _ in
                    computeForTheWatchdog(stalls, count)
                    done.open()
                })
            done.wait()
            return stalls.value.last?.backtrace.contains { $0.contains("computeForTheWatchdog") } ?? false
        }
        let stall = try #require(stalls.value.last)
        #expect(stall.processorTime > .zero && stall.processorTime <= stall.duration)
        // The frames of the library that user code runs under are there, too.
        #expect(stall.backtrace.contains { $0.contains("callOutToTimer") }, "\(stall.backtrace)")
        try running.end()
        watchdog.invalidate()
    }

    @Test func `in a forked child the watchdog watches the child's loops`() async {
        await #expect(processExitsWith: .success) {
            let (parents, children) = (Box(0), Box(0))
            let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in
                if stall.label == "parent" { parents.increment() }
                if stall.label == "child" { children.increment() }
            }
            let running = RunningLoop()
            watchdog.watch(running.loop)
            // The thread of the watchdogs knows its loops now; the child's thread must not believe that it knows them too.
            try stall(running.loop, label: "parent", parents, 1)
            // Then neither thread holds a lock of the Swift runtime that the child would inherit.
            try waitUntilAsleep(running.loop)
            try waitUntilAsleep(thread: #require(watchdogThread()))
            let inChild: @Sendable () throws -> Void = {
                watchdog.stopWatching(running.loop)
                watchdog.watch(running.loop)
                try onFreshThread { loop in
                    watchdog.watch(loop)
                    loop.add(
                        RunLoop.Timer(after: .zero, label: "child") { _ in
                            do { try waitUntil { children.value == 1 } } catch {}
                            loop.stop()
                        })
                    _ = loop.run(for: patience)
                }
            }
            let end = inForkedChild {
                do { try inChild() } catch { return 2 }
                return children.value == 1 && parents.value == 1 ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            try stall(running.loop, label: "parent", parents, 2)
            try running.end()
            #expect(parents.value == 2 && children.value == 0)
        }
    }

    @Test func `other code's handler of SIGURG stays, and sees its own signals only`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGURG) { _ in urgentSignals += 1 }
            try whileComputing({ change(SIG_UNBLOCK, [SIGURG]) }) { thread in
                try waitUntil("the thread answers") { !Backtrace.lines(of: thread).isEmpty }
            }
            #expect(urgentSignals == 0)
            change(SIG_UNBLOCK, [SIGURG])
            raise(SIGURG)
            #expect(urgentSignals == 1)
        }
    }

    // ThreadSanitizer replaces vfork by fork, in which nobody waits.
    @Test(.enabled(if: !isUnderThreadSanitizer))
    func `other code's handler of SIGURG does not see a signal that arrives after the watchdog has given it up`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGURG) { _ in urgentSignals += 1 }
            let earlier = installedHandler(of: SIGURG)
            let thread = try ThreadInVfork()
            var stack = cstacks_stack()
            let isTaken = cstacks_interrupt_for_stack(thread.id, 1, &stack)
            #expect(!isTaken)
            // Now the signal arrives.
            try thread.end()
            #expect(urgentSignals == 0)
            change(SIG_UNBLOCK, [SIGURG])
            raise(SIGURG)
            #expect(urgentSignals == 1)
            try waitUntilRestored(earlier)
            raise(SIGURG)
            #expect(urgentSignals == 2)
        }
    }

    @Test(.enabled(if: !isUnderThreadSanitizer))
    func `a source that is made while a backtrace is taken is notified once, and other code's handler is called once`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGURG) { _ in urgentSignals += 1 }
            let earlier = installedHandler(of: SIGURG)
            let count = Box(0)
            let running = RunningLoop()
            let thread = try ThreadInVfork()
            let asking = plainThread {
                var stack = cstacks_stack()
                return cstacks_interrupt_for_stack(thread.id, 1_000_000, &stack)
            }
            try waitUntil("the watchdog's handler is installed") { installedHandler(of: SIGURG) != earlier }
            let source = try countingSource(SIGURG, count)
            running.loop.add(source)
            try thread.end()
            try asking.join()
            // Another backtrace finds the source's handler installed.
            try whileComputing({ change(SIG_UNBLOCK, [SIGURG]) }) { thread in
                try waitUntil("the thread answers") { !Backtrace.lines(of: thread).isEmpty }
            }
            change(SIG_UNBLOCK, [SIGURG])
            raise(SIGURG)
            try waitUntil { count.value > 0 }
            try passAStep(of: running.loop)
            #expect(count.value == 1 && urgentSignals == 1)
            source.invalidate()
            try waitUntilRestored(earlier)
            try running.end()
        }
    }

    @Test func `a source for SIGURG does not see the watchdog's signals`() async {
        await #expect(processExitsWith: .success) {
            let count = Box<UInt64>(0)
            let running = RunningLoop { loop in
                do { loop.add(try RunLoop.SignalSource(signal: SIGURG) { source, number in count.change { $0 += UInt64(number) } }) } catch
                {
                    Issue.record(error)
                }
            }
            try whileComputing({ change(SIG_UNBLOCK, [SIGURG]) }) { thread in
                for _ in 0..<20 { try waitUntil("the thread answers") { !Backtrace.lines(of: thread).isEmpty } }
            }
            try passAStep(of: running.loop)
            #expect(count.value == 0)
            change(SIG_UNBLOCK, [SIGURG])
            raise(SIGURG)
            try waitUntil { count.value == 1 }
            try running.end()
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root may change the groups"))
    func `a process with a thousand groups has backtraces`() async {
        await #expect(processExitsWith: .success) {
            let groups = (1...1_000).map { gid_t(100_000 + $0) }
            // In a container, root may have no right to these groups.
            if setgroups(groups.count, groups) != 0 { return }
            try whileComputing({ change(SIG_UNBLOCK, [SIGURG]) }) { thread in
                try waitUntil("the thread answers", within: .seconds(60)) { !Backtrace.lines(of: thread).isEmpty }
            }
        }
    }

    @Test func `a thread that blocks SIGURG is asked with SIGPROF, and one that blocks both is not asked`() async {
        await #expect(processExitsWith: .success) {
            let threads: @Sendable () throws -> Void = {
                try whileComputing({
                    change(SIG_BLOCK, [SIGURG]); change(SIG_UNBLOCK, [SIGPROF])
                }) { thread in
                    try waitUntil("the thread answers") { !Backtrace.lines(of: thread).isEmpty }
                }
                try whileComputing({ change(SIG_BLOCK, [SIGURG, SIGPROF]) }) { thread in
                    #expect(Backtrace.lines(of: thread).isEmpty)
                    #expect(cstacks_processor_time(thread) > 0)
                }
            }
            try threads()
            // SIGPROF would end the process, if one were left.
            try passMilliseconds(5)
        }
    }
}

/// Returns nothing, so that no code behind a call of it is unreachable.
private func endThread() { pthread_exit(nil) }

@inline(never) private func computeForTheWatchdog(_ stalls: Box<[RunLoop.Watchdog.Stall]>, _ count: Int) {
    while stalls.value.count == count {}
    withExtendedLifetime(stalls) {}
}
#endif
