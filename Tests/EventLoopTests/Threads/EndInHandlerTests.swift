// A thread that ends inside a handler (rule 9.30). `pthread_exit` and `pthread_cancel` unwind the thread's frames, and Swift releases nothing
// there. The loop ends as at any other end of its thread:
//  - Other loops call the sources that the thread was calling, and get the messages that it had taken.
//  - A client whose request the thread was handling loses its connection.
//  - Those that wait for a closure get `RunLoopEnded`, also for the one that the thread was in.
//  - Timers and observers may join other loops.
//  - `onInvalidation` closures and `cancel` are called, also if one of them ends the thread again, with a loop or without.
//  - A custom source whose `schedule` or `cancel` ends a thread, with a loop or without, joins and leaves what it was to join and leave.
//  - A source that the thread was adding or removing can be finished, whichever item's last callout has ended the thread.
//  - `join` returns, and the initializer of a thread that ends in `setup` throws.
//  - A thread that is cancelled inside the library leaves no lock held (rule 9.31).

import CPlatform
import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// How a thread ends.
enum WayToEnd: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case exit = "pthread_exit"
    case cancel = "pthread_cancel"

    var testDescription: String { rawValue }

    /// Ends the calling thread.
    func endThread() -> Never {
        switch self {
        case .exit: pthread_exit(nil)
        case .cancel:
            pthread_cancel(pthread_self())
            pthread_testcancel()
            // A thread that ends already is not cancelled again.
            pthread_exit(nil)
        }
    }
}

/// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
@Suite(.bounded, .enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer)) struct EndInHandlerTests {
    /// A thread with a loop of its own, which is ended from a handler.
    private func makeThread() throws -> RunLoopThread { try RunLoopThread(name: "ends") }

    private func expectEnd(_ thread: RunLoopThread, _ location: SourceLocation = #_sourceLocation) {
        #expect(thread.join(timeout: patience), "join returns", sourceLocation: location)
        #expect(!thread.runLoop.isValid, sourceLocation: location)
    }

    // MARK: Sources that another loop has too

    /// Calls `handle` with whether it is the first call, which is on the thread that ends: by then the other loop waits for the handler.
    private func share(
        _ way: WayToEnd, _ make: (@escaping @Sendable () -> Void) throws -> RunLoop.Source, again: @escaping @Sendable (RunLoop) -> Void,
        fire: @Sendable () -> Void
    ) throws {
        let thread = try makeThread()
        let other = RunningLoop()
        let calls = Box(0)
        let shared = Box<RunLoop.Source?>(nil)
        let source = try make {
            if other.loop.isCurrent { return call(calls) }
            let source = shared.value!
            other.loop.add(source)
            again(other.loop)
            // The other loop has tried to call the source when it has slept after that.
            try? waitUntil { isAwaited(source) }
            way.endThread()
        }
        shared.value = source
        thread.runLoop.add(source)
        fire()
        expectEnd(thread)
        try waitUntil("the other loop calls the source") { calls.value > 0 }
        let isFinished = Box(false)
        source.onInvalidation { isFinished.value = true }
        source.invalidate()
        try waitUntil("the source ends") { isFinished.value }
        shared.value = nil
        try other.end()
    }

    @Test(arguments: WayToEnd.allCases)
    func `another loop calls a descriptor source that the thread was in`(_ way: WayToEnd) throws {
        let pipe = Pipe()
        try share(way) { handle in
            try readSource(pipe) { _ in handle() }
        } again: { _ in
        } fire: {
            pipe.write()
        }
    }

    @Test(arguments: WayToEnd.allCases)
    func `another loop calls a custom source that the thread was in`(_ way: WayToEnd) throws {
        let made = Box<RunLoop.CustomSource?>(nil)
        try share(way) { handle in
            let source = RunLoop.CustomSource(perform: handle)
            made.value = source
            return source
        } again: { loop in
            made.value!.signal()
            loop.wakeUp()
        } fire: {
            made.value!.signal()
            for place in made.value!.loopsAndModes { place.loop.wakeUp() }
        }
        made.value = nil
    }

    @Test(arguments: WayToEnd.allCases)
    func `another loop calls a signal source that the thread was in`(_ way: WayToEnd) throws {
        try share(way) { handle in
            try RunLoop.SignalSource(signal: SIGWINCH) { _, _ in handle() }
        } again: { _ in
            kill(getpid(), SIGWINCH)
        } fire: {
            kill(getpid(), SIGWINCH)
        }
    }

    @Test(arguments: WayToEnd.allCases)
    func `another loop gets the messages that the thread had taken from a port`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let other = RunningLoop()
        let texts = Trace()
        let port = RunLoop.Port { port, message in
            texts.add("\(message.id)")
            if other.loop.isCurrent { return }
            other.loop.add(port)
            way.endThread()
        }
        for id in 1...3 { try port.send(RunLoop.PortMessage(id: UInt32(id))) }
        thread.runLoop.add(port)
        expectEnd(thread)
        try waitUntil("the other loop gets the rest") { texts.list.count == 3 }
        #expect(texts.description == "1 2 3")
        try port.send(RunLoop.PortMessage(id: 4))
        try waitUntil("the other loop gets a new one") { texts.list.count == 4 }
        port.invalidate()
        try other.end()
    }

    @Test(arguments: WayToEnd.allCases)
    func `a client whose request ends the thread loses its connection, and another loop serves the port`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let port = try RunLoop.LocalMessagePort(name: freshName()) { _, id, data in
            if id == 1 { way.endThread() }
            return data
        }
        thread.runLoop.add(port)
        let remote = try RunLoop.RemoteMessagePort(name: port.name)
        #expect(throws: RunLoop.PortError.becameInvalid) {
            try remote.request(id: 1, sendTimeout: .seconds(60), replyTimeout: .seconds(60))
        }
        expectEnd(thread)
        let other = RunningLoop { $0.add(port) }
        #expect(try RunLoop.RemoteMessagePort(name: port.name).ask(2, "others") == "others")
        port.invalidate()
        try other.end()
    }

    // MARK: Sources, their ends

    @Test(arguments: WayToEnd.allCases)
    func `a source that its own call has invalidated is finished`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let trace = Trace()
        let custom = RunLoop.CustomSource(cancel: { _, _ in trace.add("cancel") }) {}
        thread.runLoop.add(custom)
        custom.onInvalidation { trace.add("not called: the source stays valid") }
        let pipe = Pipe()
        let source = try readSource(pipe) { source in
            source.invalidate()
            way.endThread()
        }
        source.onInvalidation { trace.add("invalidated") }
        thread.runLoop.add(source)
        pipe.write()
        expectEnd(thread)
        #expect(trace.list.sorted() == ["cancel", "invalidated"])
        #expect(custom.isValid)
    }

    @Test(arguments: WayToEnd.allCases)
    func `the source of a child that has ended is finished`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let isFinished = Box(false)
        let source = try RunLoop.ProcessSource(pid: spawnChild("/bin/sh", ["-c", "exit 0"])) { _, _ in way.endThread() }
        source.onInvalidation { isFinished.value = true }
        thread.runLoop.add(source)
        expectEnd(thread)
        #expect(isFinished.value)
    }

    @Test(arguments: WayToEnd.allCases, [false, true])
    func `a connecting source is finished, whether or not the kernel reports its outcome:`(_ way: WayToEnd, _ isReported: Bool) throws {
        let thread = try makeThread()
        let isFinished = Box(false)
        let listener = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in close(descriptor) }
        let local = try #require(listener.localAddress)
        let folder = makeTemporaryDirectory()
        defer { removeFlatDirectory(folder) }
        let address: RunLoop.SocketAddress = isReported ? local : .unix(path: folder + "/nobody")
        let source = try RunLoop.SocketSource(connectingTo: address) { _, outcome in
            if case .success(let descriptor) = outcome { close(descriptor) }
            way.endThread()
        }
        source.onInvalidation { isFinished.value = true }
        thread.runLoop.add(source)
        expectEnd(thread)
        #expect(isFinished.value)
        listener.invalidate()
    }

    @Test(arguments: WayToEnd.allCases)
    func `the other onInvalidation closures are called, whichever of them end the thread`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let trace = Trace()
        let sources = (0..<6).map { number in
            let source = RunLoop.CustomSource {}
            source.onInvalidation {
                trace.add("\(number)")
                way.endThread()
            }
            source.onInvalidation { trace.add("\(number)") }
            thread.runLoop.add(source)
            return source
        }
        thread.runLoop.perform { _ = try? plainThread { for source in sources { source.invalidate() } }.join() }
        expectEnd(thread)
        #expect(trace.list.sorted() == (0..<6).flatMap { ["\($0)", "\($0)"] })
    }

    @Test(arguments: WayToEnd.allCases, ["a plain thread", "a loop's thread", "the last release"])
    func `a source that is in no loop is finished, although its handler and each onInvalidation closure end the thread:`(
        _ way: WayToEnd, _ place: String
    ) throws {
        let trace = Trace()
        plainThread {
            let source = RunLoop.CustomSource { [ender = ReleaseNotifier { way.endThread() }] in withExtendedLifetime(ender) {} }
            for number in 1...3 {
                source.onInvalidation {
                    trace.add("\(number)")
                    way.endThread()
                }
            }
            if place != "a plain thread" {
                RunLoop.current.add(source)
                RunLoop.current.remove(source)
            }
            if place != "the last release" { source.invalidate() }
        }.detach()
        try waitUntil("every closure is called") { trace.list.count == 3 }
        #expect(trace.description == "1 2 3")
    }

    @Test(arguments: WayToEnd.allCases)
    func `every custom source is cancelled, whichever of them end the thread`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let trace = Trace()
        for number in 0..<6 {
            let source = RunLoop.CustomSource(cancel: { _, mode in
                trace.add("\(number) \(mode.rawValue)")
                way.endThread()
            }) {}
            thread.runLoop.add(source)
            thread.runLoop.add(source, forMode: "other")
        }
        thread.stop()
        expectEnd(thread)
        #expect(trace.list.sorted() == (0..<6).flatMap { ["\($0) default", "\($0) other"] })
    }

    @Test(arguments: WayToEnd.allCases, [false, true])
    func `a source leaves every mode and loop and is finished, although each cancel ends the thread:`(
        _ way: WayToEnd, _ hasLoop: Bool
    ) throws {
        let (thread, others, trace) = (try makeThread(), [RunningLoop(), RunningLoop()], Trace())
        let source = RunLoop.CustomSource(cancel: { _, mode in
            trace.add(mode.rawValue)
            way.endThread()
        }) {}
        source.onInvalidation { trace.add("invalidated") }
        let loops = others.map(\.loop) + (hasLoop ? [thread.runLoop] : [])
        for loop in loops {
            loop.add(source)
            loop.add(source, forMode: "other")
        }
        if hasLoop {
            thread.runLoop.perform { source.invalidate() }
        } else {
            plainThread { source.invalidate() }.detach()
            thread.stop()
        }
        expectEnd(thread)
        try waitUntil("the source is finished") { trace.list.contains("invalidated") }
        let count = loops.count
        let expected = Array(repeating: "default", count: count) + ["invalidated"] + Array(repeating: "other", count: count)
        #expect(trace.list.sorted() == expected)
        #expect(source.loopsAndModes.isEmpty)
        for other in others { try other.end() }
    }

    @Test(arguments: WayToEnd.allCases, ["add", "remove", "addCommonMode"])
    func `a source can be finished, although its schedule or cancel has ended threads in the call:`(
        _ way: WayToEnd, _ call: String
    ) throws {
        let (other, trace, endsThreads) = (RunningLoop(), Trace(), Box(false))
        let loop = other.loop
        let handle: @Sendable (RunLoop, RunLoop.Mode) -> Void = { _, mode in
            trace.add(mode.rawValue)
            if endsThreads.value { way.endThread() }
        }
        let isRemoved = call == "remove"
        let sources = (0..<2).map { _ in
            RunLoop.CustomSource(schedule: isRemoved ? nil : handle, cancel: isRemoved ? handle : nil) {}
        }
        loop.addCommonMode("second")
        if call != "add" { for source in sources { loop.add(source, forMode: .common) } }
        _ = trace.take()
        endsThreads.value = true
        if call == "addCommonMode" {
            plainThread { loop.addCommonMode("third") }.detach()
        } else {
            for source in sources {
                plainThread {
                    if call == "add" { _ = loop.add(source, forMode: .common) } else { loop.remove(source, forMode: .common) }
                }.detach()
            }
        }
        let modes = call == "addCommonMode" ? ["third", "third"] : ["default", "default", "second", "second"]
        try waitUntil("every closure is called") { trace.list.sorted() == modes }
        endsThreads.value = false
        let finished = Box(0)
        for source in sources {
            source.onInvalidation { _ = finished.increment() }
            source.invalidate()
        }
        try waitUntil("the sources are finished") { finished.value == 2 }
        try other.end()
    }

    @Test(arguments: WayToEnd.allCases)
    func `a loop whose schedule ends its thread has called the others, and ends`(_ way: WayToEnd) throws {
        let (thread, trace) = (try makeThread(), Trace())
        let source = RunLoop.CustomSource(
            schedule: { _, mode in
                trace.add("schedule \(mode.rawValue)")
                way.endThread()
            },
            cancel: { _, mode in trace.add("cancel \(mode.rawValue)") }
        ) {}
        thread.runLoop.perform {
            RunLoop.current.addCommonMode("second")
            RunLoop.current.add(source, forMode: .common)
        }
        expectEnd(thread)
        #expect(trace.list == ["schedule default", "schedule second", "cancel default", "cancel second"])
        let isFinished = Box(false)
        source.onInvalidation { isFinished.value = true }
        source.invalidate()
        #expect(isFinished.value)
    }

    @Test(arguments: WayToEnd.allCases, ["add", "remove", "remove custom"])
    func `a source can be finished, although another one's last callout has ended the thread in the call:`(
        _ way: WayToEnd, _ call: String
    ) throws {
        let thread = try makeThread()
        let source: RunLoop.Source = try call == "remove custom" ? RunLoop.CustomSource {} : readSource(Pipe()) { _ in }
        if call != "add" { thread.runLoop.add(source) }
        let others = (0..<2).map { _ in RunLoop.CustomSource {} }
        // The loop makes the second one's last callout inside the call.
        others[0].onInvalidation {
            if call == "add" { _ = RunLoop.current.add(source) } else { RunLoop.current.remove(source) }
        }
        others[1].onInvalidation { way.endThread() }
        for other in others { thread.runLoop.add(other) }
        thread.runLoop.perform { _ = try? plainThread { for other in others { other.invalidate() } }.join() }
        expectEnd(thread)
        let isFinished = Box(false)
        source.onInvalidation { isFinished.value = true }
        source.invalidate()
        #expect(isFinished.value)
    }

    @Test(arguments: WayToEnd.allCases)
    func `another loop calls a custom source whose cancel has ended the thread in a call of the source`(_ way: WayToEnd) throws {
        let (thread, other, calls) = (try makeThread(), RunningLoop(), Box(0))
        let made = Box<RunLoop.CustomSource?>(nil)
        let source = RunLoop.CustomSource(cancel: { loop, _ in if loop !== other.loop { way.endThread() } }) {
            if other.loop.isCurrent { return call(calls) }
            let source = made.value!
            other.loop.add(source)
            source.signal()
            other.loop.wakeUp()
            // The other loop has tried to call the source when it has slept after that.
            try? waitUntil { isAwaited(source) }
            RunLoop.current.remove(source)
        }
        made.value = source
        thread.runLoop.add(source)
        source.signal()
        thread.runLoop.wakeUp()
        expectEnd(thread)
        try waitUntil("the other loop calls the source") { calls.value > 0 }
        let isFinished = Box(false)
        source.onInvalidation { isFinished.value = true }
        source.invalidate()
        try waitUntil("the source ends") { isFinished.value }
        made.value = nil
        try other.end()
    }

    @Test func `a child in which a cancel ends the thread leaves its parent's other calls alone`() async {
        await #expect(processExitsWith: .success) {
            let (trace, end) = (Trace(), Box<ChildEnd?>(nil))
            try onFreshThread { loop in
                let parent = getpid()
                let source = RunLoop.CustomSource(cancel: { _, mode in
                    if getpid() != parent { _exit(2) }
                    trace.add(mode.rawValue)
                    if mode == .default { end.value = inForkedChild { endThreadOfChild() } }
                }) {}
                source.onInvalidation { trace.add("invalidated") }
                loop.add(source)
                loop.add(source, forMode: "other")
                source.invalidate()
            }
            #expect(end.value?.status == 0)
            #expect(trace.description == "default other invalidated")
        }
    }

    // MARK: Timers and observers

    @Test(arguments: WayToEnd.allCases)
    func `a repeating timer may join another loop, and a timer that fires once has fired`(_ way: WayToEnd) throws {
        let ending = Box<RunLoop?>(nil)
        let calls = Box(0)
        for repeats in [true, false] {
            let thread = try makeThread()
            ending.value = thread.runLoop
            calls.value = 0
            let handler: @Sendable (RunLoop.Timer) -> Void = { _ in
                if ending.value!.isCurrent { way.endThread() }
                calls.increment()
            }
            let timer =
                repeats
                ? RunLoop.Timer(every: .milliseconds(1), handler: handler) : RunLoop.Timer(fireAt: .distantPast, handler: handler)
            thread.runLoop.add(timer)
            expectEnd(thread)
            #expect(timer.isValid == repeats)
            let other = RunningLoop()
            #expect(other.loop.add(timer) == repeats)
            if repeats { try waitUntil("the other loop fires the timer") { calls.value > 0 } }
            timer.invalidate()
            try other.end()
        }
    }

    @Test(arguments: WayToEnd.allCases)
    func `a repeating observer may join another loop, also in its own call, and any other was notified`(_ way: WayToEnd) throws {
        let ending = Box<RunLoop?>(nil)
        let next = Box<RunLoop?>(nil)
        let calls = Box(0)
        for (repeats, moves) in [(true, false), (true, true), (false, false)] {
            let thread = try makeThread()
            let other = RunningLoop()
            ending.value = thread.runLoop
            next.value = moves ? other.loop : nil
            calls.value = 0
            let observer = RunLoop.Observer(activities: .beforeSources, repeats: repeats) { observer, _ in
                guard ending.value!.isCurrent else { return call(calls) }
                if let next = next.value {
                    RunLoop.current.remove(observer)
                    next.add(observer)
                }
                way.endThread()
            }
            thread.runLoop.add(observer)
            thread.runLoop.wakeUp()
            expectEnd(thread)
            #expect(observer.isValid == repeats)
            if !moves { #expect(other.loop.add(observer) == repeats) }
            if repeats {
                try waitUntil("the other loop notifies the observer") {
                    other.loop.wakeUp()
                    return calls.value > 0
                }
            }
            observer.invalidate()
            try other.end()
        }
    }

    // MARK: Closures

    @Test(arguments: WayToEnd.allCases)
    func `threads that wait for the closure that ends the thread, or for one behind it, get an error`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let (entered, go) = (Gate(), Gate())
        // Written to by the closure, whose context is on the stack of the waiting thread.
        let first = plainThread { () -> Bool in
            var sum = 0
            do {
                let value = try thread.runLoop.performAndWait { () -> Int in
                    entered.open()
                    go.wait()
                    way.endThread()
                }
                sum += value
                return false
            } catch { return error is RunLoopEnded && sum == 0 }
        }
        entered.wait()
        let second = plainThread { () -> Bool in
            do {
                try thread.runLoop.performAndWait {}
                return false
            } catch { return error is RunLoopEnded }
        }
        try waitUntil("it is queued") { hasPerforms(thread.runLoop) }
        go.open()
        #expect(try first.join())
        #expect(try second.join())
        expectEnd(thread)
    }

    @Test(arguments: WayToEnd.allCases)
    func `tasks that wait for the closure that ends the thread, or for one behind it, get an error`(_ way: WayToEnd) async throws {
        let thread = try makeThread()
        let (entered, go) = (Gate(), Gate())
        let loop = thread.runLoop
        async let first: Bool = {
            do {
                return try await loop.performAsync { () -> Bool in
                    entered.open()
                    go.wait()
                    way.endThread()
                }
            } catch { return error is RunLoopEnded }
        }()
        try await entered.waitInTask()
        async let second: Bool = {
            do {
                return try await loop.performAsync { false }
            } catch { return error is RunLoopEnded }
        }()
        try await suspendUntil("it is queued") { hasPerforms(loop) }
        go.open()
        #expect(await first)
        #expect(await second)
        #expect(await thread.join(timeout: patience))
    }

    @Test(arguments: WayToEnd.allCases)
    func `a task gets a message of a port although what its delivery releases ends the thread`(_ way: WayToEnd) async throws {
        let thread = try makeThread()
        let port = RunLoop.Port(capacity: 1)
        try port.send(RunLoop.PortMessage(id: 1))
        // The request waits for room. Its loop has ended, so it refuses the closure, which is released then.
        let ended = try onFreshThread { $0 }
        port.whenRoom(on: ended) { [ender = ReleaseNotifier { way.endThread() }] in withExtendedLifetime(ender) {} }
        var messages = thread.runLoop.messages(of: port).makeAsyncIterator()
        #expect(await messages.next()?.id == 1)
        #expect(await thread.join(timeout: patience))
    }

    @Test(arguments: WayToEnd.allCases, ["perform", "block", "delayed perform"])
    func `a thread ends in a closure that nobody waits for:`(_ way: WayToEnd, _ kind: String) throws {
        let thread = try makeThread()
        switch kind {
        case "perform": thread.runLoop.perform { way.endThread() }
        case "block":
            thread.runLoop.performBlock { way.endThread() }
            thread.runLoop.wakeUp()
        default: thread.runLoop.perform(after: .zero) { way.endThread() }
        }
        expectEnd(thread)
        #expect(!thread.runLoop.perform {})
    }

    @Test(arguments: WayToEnd.allCases)
    func `jobs behind the one that ends the thread are run as those of any ended loop`(_ way: WayToEnd) async throws {
        let thread = try makeThread()
        let loop = thread.runLoop
        let (entered, go) = (Gate(), Gate())
        loop.perform {
            entered.open()
            go.wait()
        }
        try await entered.waitInTask()
        // Never ends.
        _ = Task(executorPreference: loop) { endOnly(way) }
        try await suspendUntil("it is queued") { jobs(of: loop) == 1 }
        let second = Task(executorPreference: loop) { true }
        try await suspendUntil("they are queued") { jobs(of: loop) == 2 }
        go.open()
        #expect(await second.value)
        #expect(await thread.join(timeout: patience))
    }

    @Test func `jobs of ended loops run although one of them ends the thread for such jobs`() async {
        // In a process of its own, because the process has one such thread, which other tests use.
        await #expect(processExitsWith: .success) {
            for way in WayToEnd.allCases {
                let trace = Trace()
                let loop = try onFreshThread { loop in
                    // Never ends.
                    Task(executorPreference: loop) { endOnly(way) }
                    for number in 1...3 { Task(executorPreference: loop) { trace.add("\(number)") } }
                    return loop
                }
                try waitUntil("the jobs behind it have run") { trace.list.count == 3 }
                #expect(trace.take() == "1 2 3")
                Task(executorPreference: loop) { trace.add("later") }
                try waitUntil("a later job has run") { !trace.list.isEmpty }
                let other = try onFreshThread { loop in
                    Task(executorPreference: loop) { trace.add("other") }
                    return loop
                }
                try waitUntil("a job of another loop has run") { trace.list.count == 2 }
                #expect(trace.description == "later other")
                #expect(!loop.isValid && !other.isValid)
            }
        }
    }

    @Test func `a thread that ends in a child, where it has forked in a job of an ended loop, leaves the child's jobs alone`() async {
        await #expect(processExitsWith: .success) {
            let end = Box<ChildEnd?>(nil)
            let loop = try onFreshThread { loop in
                Task(executorPreference: loop) { end.value = inForkedChild { endBesideJobs() } }
                return loop
            }
            try waitUntil("the child has ended") { end.value != nil }
            #expect(end.value?.status == 0)
            #expect(!loop.isValid)
        }
    }

    // MARK: Runs

    @Test(arguments: WayToEnd.allCases)
    func `every level of nested runs ends`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let other = RunningLoop()
        let (pipe, calls) = (Pipe(), Box(0))
        let outer = try readSource(pipe) { source in
            if other.loop.isCurrent { return call(calls) }
            let loop = RunLoop.current
            loop.perform(inModes: ["inner"]) {
                RunLoop.current.perform(inModes: ["innermost"]) { way.endThread() }
                _ = RunLoop.current.run(mode: "innermost", for: patience)
            }
            _ = loop.run(mode: "inner", for: patience)
        }
        let timer = RunLoop.Timer(every: .milliseconds(1)) { _ in }
        thread.runLoop.add(timer)
        thread.runLoop.add(outer)
        pipe.write()
        expectEnd(thread)
        #expect(thread.runLoop.runDepth == 0 && thread.runLoop.currentMode == nil)
        other.loop.add(outer)
        try waitUntil("the other loop calls the source") { calls.value > 0 }
        #expect(other.loop.add(timer))
        timer.invalidate()
        outer.invalidate()
        try other.end()
    }

    @Test(arguments: WayToEnd.allCases)
    func `a thread ends in a step of a hosted loop`(_ way: WayToEnd) throws {
        let trace = Trace()
        let loop = Box<RunLoop?>(nil)
        let (pipe, calls) = (Pipe(), Box(0))
        let custom = RunLoop.CustomSource(cancel: { _, _ in trace.add("cancel") }) {}
        let source = try readSource(pipe) { _ in
            if loop.value!.isCurrent { way.endThread() }
            call(calls)
        }
        pipe.write()
        let thread = plainThread {
            loop.value = RunLoop.current
            guard let hosted = try? RunLoop.current.hosted() else { return }
            RunLoop.current.add(custom)
            RunLoop.current.add(source)
            _ = hosted.step()
        }
        try waitUntil("the loop ends") { loop.value?.isValid == false }
        try waitUntil("the source leaves it") { trace.description == "cancel" }
        thread.detach()
        #expect(custom.isValid)
        let other = RunningLoop()
        other.loop.add(source)
        try waitUntil("the other loop calls the source") { calls.value > 0 }
        source.invalidate()
        try other.end()
    }

    @Test(arguments: WayToEnd.allCases)
    func `a run that is nested in a last callout of such a thread returns at once`(_ way: WayToEnd) throws {
        let thread = try makeThread()
        let results = Trace()
        let source = RunLoop.CustomSource(cancel: { loop, _ in results.add("\(loop.run(for: patience))") }) {}
        thread.runLoop.add(source)
        thread.runLoop.perform { way.endThread() }
        expectEnd(thread)
        #expect(results.description == "finished")
    }

    @Test(arguments: WayToEnd.allCases)
    func `a run in a cancel that follows the end of the thread outside its runs returns at once`(_ way: WayToEnd) throws {
        let results = Trace()
        plainThread {
            let loop = RunLoop.current
            loop.addIdleSource()
            loop.addCommonMode("second")
            let source = RunLoop.CustomSource(cancel: { loop, mode in
                if mode == .default { way.endThread() }
                results.add("\(loop.run(for: patience))")
            }) {}
            loop.add(source, forMode: .common)
            loop.remove(source, forMode: .common)
        }.detach()
        try waitUntil("the other cancel returns") { !results.list.isEmpty }
        #expect(results.description == "stopped")
    }

    // MARK: Threads

    @Test(arguments: WayToEnd.allCases)
    func `the initializer of a thread that ends in its setup throws RunLoopEnded`(_ way: WayToEnd) throws {
        let outcome = plainThread { () -> Bool in
            do {
                _ = try RunLoopThread(name: "ends", setup: { _ in way.endThread() })
                return false
            } catch { return error is RunLoopEnded }
        }
        #expect(try outcome.join())
    }

    @Test(arguments: WayToEnd.allCases)
    func `a thread ends in its last batch, in drain and in teardown`(_ way: WayToEnd) throws {
        for place in ["batch", "drain", "teardown"] {
            let thread = try RunLoopThread(
                name: "ends", setup: { _ in },
                drain: { _, _ in if place == "drain" { way.endThread() } },
                teardown: { _, _ in if place == "teardown" { way.endThread() } })
            let waiter = plainThread { () -> String in
                guard place == "batch" else { return "none" }
                do {
                    // No run is in this mode, so it is performed in the last batch.
                    try thread.runLoop.performAndWait(inModes: ["other"]) { way.endThread() }
                } catch { return "\(type(of: error))" }
            }
            if place == "batch" { try waitUntil("it is queued") { hasPerforms(thread.runLoop) } }
            thread.stop()
            expectEnd(thread)
            #expect(try waiter.join() == (place == "batch" ? "RunLoopEnded" : "none"))
        }
    }

    @Test(arguments: WayToEnd.allCases)
    func `threads that wait for the last batch get an error, although a last callout before the batch ends the thread`(
        _ way: WayToEnd
    ) throws {
        let source = try readSource(Pipe()) { _ in }
        source.onInvalidation { way.endThread() }
        let thread = try RunLoopThread(
            name: "ends", setup: { _ in },
            // The loop applies this when it has taken the closures of the last batch.
            drain: { _, _ in _ = try? plainThread { source.invalidate() }.join() },
            teardown: { _, _ in })
        thread.runLoop.add(source)
        let waiter = plainThread { () -> Bool in
            do {
                // No run is in this mode.
                try thread.runLoop.performAndWait(inModes: ["other"]) {}
                return false
            } catch { return error is RunLoopEnded }
        }
        try waitUntil("it is queued") { hasPerforms(thread.runLoop) }
        thread.stop()
        expectEnd(thread)
        #expect(try waiter.join())
    }

    @Test func `a thread that is cancelled in the sleep of its loop ends, and what it has may join another loop`() throws {
        let thread = try makeThread()
        let id = try thread.runLoop.performAndWait { currentThreadID() }
        let (pipe, other, calls) = (Pipe(), RunningLoop(), Box(0))
        let source = try readSource(pipe) { _ in call(calls) }
        thread.runLoop.add(source)
        try waitUntilAsleep(thread.runLoop)
        #if canImport(Glibc)
        pthread_cancel(pthread_t(id))
        #else
        pthread_cancel(pthread_t(bitPattern: id)!)
        #endif
        expectEnd(thread)
        other.loop.add(source)
        pipe.write()
        try waitUntil("the other loop calls the source") { calls.value > 0 }
        source.invalidate()
        try other.end()
    }

    @Test func `a cancelled thread that waits for a closure waits until the closure has returned`() throws {
        let thread = try makeThread()
        let (entered, go, stage) = (Gate(), Gate(), Box("waits"))
        let id = Box<UInt>(0)
        let waiter = plainThread {
            id.value = currentThreadID()
            try? thread.runLoop.performAndWait {
                entered.open()
                go.wait()
            }
            stage.value = "has waited"
            pthread_testcancel()
            stage.value = "was not cancelled"
        }
        entered.wait()
        #if canImport(Glibc)
        pthread_cancel(pthread_t(id.value))
        #else
        pthread_cancel(pthread_t(bitPattern: id.value)!)
        #endif
        go.open()
        try waitUntil("it has waited") { stage.value == "has waited" }
        waiter.detach()
        thread.stop()
        #expect(thread.join(timeout: patience))
    }

    @Test func `a cancelled thread that counts the free descriptors leaves no lock held`() async {
        // In a process of its own, which is killed if the lock stays held.
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let cancelled = plainThread { () -> Int32 in
                pthread_cancel(pthread_self())
                let code = cplatform_check_room(1)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return code
            }
            let code = try cancelled.join()
            #expect(code == 0)
            #expect(cplatform_check_room(1) == 0)
        }
    }

    @Test func `a cancelled thread that begins to listen at a path leaves no lock on its directory`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let folder = makeTemporaryDirectory()
            defer { removeFlatDirectory(folder) }
            let cancelled = plainThread { () -> RunLoop.SocketSource in
                pthread_cancel(pthread_self())
                let source = try RunLoop.SocketSource(listeningOn: .unix(path: folder + "/s")) { _, _, _ in }
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return source
            }
            let source = try cancelled.join()
            let directory = open(folder, O_RDONLY)
            let isFree = cplatform_try_lock_file(directory) == 0
            #expect(isFree)
            source.invalidate()
        }
    }

    @Test func `a cancelled thread that tries to connect again leaves no lock held`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let folder = makeTemporaryDirectory()
            defer { removeFlatDirectory(folder) }
            let server = DeafListener(.unix(path: folder + "/full"))
            server.fill()
            let attempt = try ConnectAttempt(server.address, from: nil) { _ in }
            let cancelled = plainThread {
                pthread_cancel(pthread_self())
                _ = attempt.tryAgain()
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
            }
            try cancelled.join()
            var isFull = false
            if case .queueIsFull = attempt.phase { isFull = true }
            #expect(isFull)
            withExtendedLifetime(server) {}
        }
    }
}

private func call(_ calls: Box<Int>) { _ = calls.increment() }

/// Whether a loop waits for the handler to return on another thread.
private func isAwaited(_ source: RunLoop.Source) -> Bool { source.core.pointee.hasWaiters.load(ordering: .acquiring) }

private func hasPerforms(_ loop: RunLoop) -> Bool {
    loop.shared.withLock { shared in
        !loop.common.isEmptyLocked(.perform) || shared.modes.all.contains { !$0.isEmptyLocked(.perform) }
    }
}

private func jobs(of loop: RunLoop) -> Int { loop.shared.withLock { $0.jobs.count } }

/// Not in the task's own closure, whose end the compiler expects.
private func endOnly(_ way: WayToEnd) { way.endThread() }

/// Ends the only thread of a child, and the process behind what the library does for the thread.
private func endThreadOfChild() -> Never {
    // The handlers of keys are called in the order in which the keys were made.
    var key = pthread_key_t()
    pthread_key_create(&key) { _ in _exit(0) }
    pthread_setspecific(key, UnsafeRawPointer(bitPattern: 1))
    pthread_exit(nil)
}

private let forkingThreadHasEnded = Atomic<Bool>(false)

/// Ends the calling thread while the process's thread for the jobs of ended loops is in a job, and the process in the next job: with 0 if that
/// runs on the same thread.
private func endBesideJobs() -> Int32 {
    // The handlers of keys are called in the order in which the keys were made.
    var key = pthread_key_t()
    pthread_key_create(&key) { _ in forkingThreadHasEnded.store(true, ordering: .sequentiallyConsistent) }
    pthread_setspecific(key, UnsafeRawPointer(bitPattern: 1))
    let first = Box<UInt>(0)
    _ = try? onFreshThread { loop in
        Task(executorPreference: loop) { waitForForkingThread(first) }
        Task(executorPreference: loop) { endProcess(first) }
    }
    try? waitUntil("the first job has begun") { first.value != 0 }
    pthread_exit(nil)
}

private func waitForForkingThread(_ thread: Box<UInt>) {
    thread.value = currentThreadID()
    try? waitUntil("the thread that has forked has ended") { forkingThreadHasEnded.load(ordering: .sequentiallyConsistent) }
}

private func endProcess(_ thread: Box<UInt>) { _exit(currentThreadID() == thread.value ? 0 : 1) }
