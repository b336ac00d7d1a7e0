// A process that has no descriptor left, and the same process when it has some again.

import Dispatch
import EventLoop
import EventLoopMessagePorts
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

func tryFull(_ options: Options) -> Bool {
    var failures = 0
    for (name, body) in fullCases where options.scenario == nil || options.scenario == name {
        let verdict = Case.run(mayStop: false) { try body() }
        say("\(name): \(verdict.ending) \(verdict.text)")
        if !verdict.isGood || verdict.ending != .worked { failures += 1 }
    }
    return failures == 0
}

private let fullCases: [(String, @Sendable () throws -> Void)] = [
    ("modal runs serve everything", modalRuns), ("calls that can throw throw", throwingCalls), ("the reserve is for one of each", reserve),
    ("the main loop serves the main queue", mainLoop), ("edges do not spin", edges), ("stops, limits and performs get through", control),
    ("a closed descriptor fails its source", closedDescriptor), ("a base is made as soon as there is room", recovery),
    ("other threads take what is free", thief), ("the channel in reserve is there at any moment", anyMoment),
    ("more sources than descriptors", manySources),
    ("threads that ask for the main loop share the last descriptor", lastDescriptor), ("single runs serve sources in turn", turns),
    ("few descriptors are not opened at each run", fewDescriptors),
    ("a try for a base takes no descriptor from those who need one", fewForMany),
    ("a file left behind does not spin the wait", fileLeftBehind),
    ("a source that was found ready and not called leaves nothing behind", foundAndNotCalled),
]

/// Holds every descriptor that the process may have, until `free`.
final class AllDescriptors {
    private var taken: [Int32] = []

    init() {
        limitDescriptors(100)
        take()
    }

    func take() {
        while true {  // ends: at the limit
            let descriptor = dup(STDERR_FILENO)
            if descriptor < 0 { return }
            taken.append(descriptor)
        }
    }

    func free() { free(taken.count) }

    func free(_ count: Int) {
        for descriptor in taken.suffix(count) { close(descriptor) }
        taken.removeLast(count)
    }
}

/// Runs `body` with a loop that has a base, in a process that has a complete reserve and no descriptors left.
func withFullProcess(_ body: @escaping @Sendable (RunLoop, Ends, AllDescriptorsBox) throws -> Void) throws {
    try onThread { loop in
        let ends = try Ends()
        // The first sleep creates the loop's base, and then the reserve. A run that began late would not sleep.
        run(loop) { epollSets() >= 2 }
        try require(epollSets() >= 2, "no base for the loop and one in reserve")
        try body(loop, ends, AllDescriptorsBox())
    }
}

final class AllDescriptorsBox: @unchecked Sendable {
    // SAFETY: one thread of the case at a time uses it.
    let all = AllDescriptors()
}

private func epollSets() -> Int { openDescriptors().count { $0.contains("eventpoll") } }

@Sendable private func modalRuns() throws {
    let ends = try Ends()
    let seen = Counter()
    // Created beforehand, because a source needs a descriptor for a moment.
    let source = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read) { _, _ in
        for _ in 0..<ends.empty() { seen.increment() }
    }
    try withFullProcess { loop, _, _ in
        // The first loop has the base in reserve; the others have none.
        for number in 1...4 {
            let mode = RunLoop.Mode("modal \(number)")
            let (fired, performed) = (Counter(), Counter())
            loop.add(source, forMode: mode)
            loop.add(RunLoop.Timer(after: .milliseconds(5)) { _ in fired.increment() }, forMode: mode)
            let sender = try startThread {
                usleep(2_000)
                loop.perform(inModes: [mode]) { performed.increment() }
                try ends.fill()
            }
            run(loop, mode) { seen.value == number && fired.value == 1 && performed.value == 1 }
            try sender.join()
            try require(
                seen.value == number && fired.value == 1 && performed.value == 1, [source],
                "\(mode): \(seen.value) bytes, \(fired.value) timers, \(performed.value) performs")
        }
        source.invalidate()
    }
}

@Sendable private func throwingCalls() throws {
    try withFullProcess { _, _, _ in
        func expectShortage(_ name: String, _ body: () throws -> Void) throws {
            do {
                try body()
            } catch RunLoop.SourceError.system(_, EMFILE) {
                return
            } catch RunLoop.PortError.system(_, EMFILE) {
                return
            } catch {
                throw Wrong(text: "\(name): \(error)")
            }
            throw Wrong(text: "\(name) was made without a descriptor")
        }
        try expectShortage("RunLoopThread") { _ = try RunLoopThread(name: "none") }
        try expectShortage("RunLoopThreadGroup") { _ = try RunLoopThreadGroup(count: 2) }
        try expectShortage("LocalMessagePort") { _ = try RunLoop.LocalMessagePort(name: "none") { _, _, _ in nil } }
        try expectShortage("RemoteMessagePort") { _ = try RunLoop.RemoteMessagePort(name: "none") }
        try expectShortage("SocketSource") {
            _ = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in close(descriptor) }
        }
        try expectShortage("SignalSource") { _ = try RunLoop.SignalSource(signal: SIGUSR2) { _, _ in } }
        let child = systemFork()
        if child == 0 { _exit(0) }
        try expectShortage("ProcessSource") { _ = try RunLoop.ProcessSource(pid: child) { _, _ in } }
        waitpid(child, nil, 0)
    }
}

@Sendable private func reserve() throws {
    try withFullProcess { loop, _, _ in
        let sets = epollSets()
        try require(loop.withEventBase(forMode: "hosts") { _ in true }, "no base in reserve")
        try require(epollSets() == sets, "the base was not in reserve")
        try onThread { loop in
            let fired = Counter()
            loop.add(RunLoop.Timer(after: .milliseconds(1)) { _ in fired.increment() })
            run(loop) { fired.value == 1 }
            try require(fired.value == 1, "a loop with the channel in reserve fires no timer")
        }
    }
}

@Sendable private func mainLoop() throws {
    let served = Counter()
    try startThread { try withFullProcess { _, _, all in _ = Unmanaged.passRetained(all) } }.join()
    let sender = try startThread {
        usleep(20_000)
        DispatchQueue.main.async { served.increment() }
    }
    run(RunLoop.main) { served.value == 1 }
    try sender.join()
    try require(served.value == 1, "the main queue's block is lost")
}

/// Uses up the reserve, so that the next mode has no base.
func useReserve(_ loop: RunLoop) { loop.withEventBase(forMode: "hosts") { _ in } }

@Sendable private func edges() throws {
    let ends = try Ends()
    let (edges, shots) = (Counter(), Counter())
    // No handler reads, so a level-triggered source would be ready at every check.
    let edge = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read, trigger: .edge) { _, _ in edges.increment() }
    let shot = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read, trigger: .oneShot) { _, _ in shots.increment() }
    try withFullProcess { loop, _, _ in
        useReserve(loop)
        loop.add(edge, forMode: "edges")
        loop.add(shot, forMode: "edges")
        try ends.fill()
        let before = loop.statistics.passes
        try require(loop.run(mode: "edges", for: .milliseconds(200)) == .timedOut, "the run did not end by its limit")
        let passes = loop.statistics.passes - before
        try require(passes <= 60, "\(passes) passes in 200 ms")
        try require(edges.value >= 1 && edges.value <= 25, "the edge was served \(edges.value) times in 200 ms")
        try require(shots.value == 1, "the only shot was served \(shots.value) times")
        shot.rearm()
        run(loop, "edges") { shots.value == 2 }
        try require(shots.value == 2, "the second shot is lost")
        edge.invalidate()
        shot.invalidate()
    }
}

@Sendable private func control() throws {
    try withFullProcess { loop, _, _ in
        useReserve(loop)
        let mode: RunLoop.Mode = "control"
        let alive = loop.keepAlive(forMode: mode)
        defer { alive.cancel() }
        let before = loop.statistics.passes
        let start = RunLoop.Instant.now
        try require(loop.run(mode: mode, for: .milliseconds(300)) == .timedOut, "the run did not end by its limit")
        let took = start.duration(to: .now)
        try require(took >= .milliseconds(300), "the run ended after \(took)")
        try require(loop.statistics.passes - before <= 5, "\(loop.statistics.passes - before) passes in an idle run")
        for _ in 0..<50 {
            let stopper = try startThread { loop.stop(sticky: true) }
            try require(loop.run(mode: mode, for: patience) == .stopped, "the stop is lost")
            try stopper.join()
        }
        let (asked, answered) = (Counter(), Counter())
        let asker = try startThread {
            for _ in 0..<50 {
                asked.increment()
                try loop.performAndWait(inModes: [mode], timeout: patience) { answered.increment() }
            }
        }
        run(loop, mode) { answered.value == 50 }
        try asker.join()
        try require(answered.value == 50, "\(answered.value) of 50 performs")
    }
}

@Sendable private func closedDescriptor() throws {
    let descriptor = dup(STDERR_FILENO)
    let ends = try Ends()
    dup2(ends.near, descriptor)
    let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }
    try withFullProcess { loop, _, all in
        useReserve(loop)
        loop.add(source, forMode: "closed")
        close(descriptor)
        all.all.take()
        _ = loop.run(mode: "closed", for: .milliseconds(50))
        close(descriptor)
        run(loop, "closed") { !source.isValid }
        try require(source.failure == .badDescriptor(descriptor), "\(String(describing: source.failure))")
    }
}

@Sendable private func foundAndNotCalled() throws {
    let ends = try Ends()
    let ended = Counter()
    try withFullProcess { loop, _, _ in
        useReserve(loop)
        let mode: RunLoop.Mode = "found"
        try ends.fill()
        /// A pass in which it is the timers' turn, although a source is ready.
        func addSource() throws -> RunLoop.DescriptorSource {
            let source = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read) { _, _ in }
            source.onInvalidation { ended.increment() }
            loop.add(source, forMode: mode)
            let fired = Counter()
            loop.add(RunLoop.Timer(fireAt: .distantPast) { _ in fired.increment() }, forMode: mode)
            while fired.value == 0 { _ = loop.run(mode: mode, for: .zero) }  // ends: the kinds take turns
            return source
        }
        loop.remove(try addSource(), forMode: mode)
        try require(ended.value == 1, "a source that nobody has any more has not ended")
        _ = try addSource()
    }
    try require(ended.value == 2, "a source of a loop that has ended has not ended")
}

@Sendable private func recovery() throws {
    let ends = try Ends()
    let seen = Counter()
    let source = try RunLoop.DescriptorSource(descriptor: ends.near, events: .read) { _, _ in
        for _ in 0..<ends.empty() { seen.increment() }
    }
    try withFullProcess { loop, _, all in
        useReserve(loop)
        loop.add(source, forMode: "new")
        _ = loop.run(mode: "new", for: .milliseconds(20))
        let sets = epollSets()
        let freer = try startThread {
            usleep(50_000)
            all.all.free()
        }
        // One run without a new pass: the loop checks by itself.
        _ = loop.run(mode: "new", for: .milliseconds(1_500))
        try freer.join()
        // The mode's base and the base in reserve.
        try require(epollSets() >= sets + 2, "\(epollSets() - sets) bases were made")
        try ends.fill()
        run(loop, "new") { seen.value == 1 }
        try require(seen.value == 1, [source], "the base does not serve")
        source.invalidate()
    }
}

/// For a second, a thread takes every free descriptor and returns some of them, while loops are created.
@Sendable private func thief() throws {
    limitDescriptors(60)
    try besideRobber {
        let deadline = RunLoop.Instant.now.advanced(by: .seconds(1))
        var (made, refused) = (0, 0)
        while RunLoop.Instant.now < deadline {
            do {
                let thread = try RunLoopThread(name: "robbed")
                try require(try thread.runLoop.performAndWait(timeout: patience) { 42 } == 42, "no answer")
                thread.stop()
                thread.join()
                made += 1
            } catch let RunLoop.SourceError.system(_, code) where code == EMFILE {
                refused += 1
            }
        }
        try require(made + refused > 20, "made \(made), refused \(refused)")
    }
}

private func besideRobber(_ body: () throws -> Void) throws {
    let flag = Counter()
    let robber = try startThread {
        var taken: [Int32] = []
        var number = 0
        while flag.value == 0 {
            let descriptor = dup(STDERR_FILENO)
            if descriptor >= 0 { taken.append(descriptor) }
            number += 1
            if descriptor < 0 || number % 7 == 0 {
                for descriptor in taken.suffix(number % 13) { close(descriptor) }
                taken.removeLast(min(taken.count, number % 13))
            }
        }
        for descriptor in taken { close(descriptor) }
    }
    let result = Result { try body() }
    flag.increment()
    try robber.join()
    try result.get()
}
