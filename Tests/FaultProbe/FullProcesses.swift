// More about a process that has no descriptor left: moments that involve two threads, and the order in which sources are served.

import CFaults
import EventLoop
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

/// Tries `count` times, or as often as a busy machine can in ten seconds.
private func tryOften(_ count: Int, _ body: (Int) throws -> Void) throws {
    let end = RunLoop.Instant.now.advanced(by: .seconds(10))
    for number in 1...count where RunLoop.Instant.now < end { try body(number) }
}

/// Tries each time in a new process, because a process uses its reserve only once.
private func tryInProcesses(_ count: Int, _ body: () throws -> Void) throws {
    try tryOften(count) { number in
        let child = systemFork()
        if child < 0 { throw OwnCall(name: "fork") }
        if child == 0 {
            // This alarm comes before the case's own, so that the case can name the process that hangs.
            alarm(Case.patience / 2)
            do {
                try body()
            } catch {
                let sentence = "Fatal error: \(error)\n"
                _ = write(STDERR_FILENO, sentence, sentence.utf8.count)
                _exit(1)
            }
            _exit(0)
        }
        var status: Int32 = 0
        while waitpid(child, &status, 0) < 0 && errno == EINTR {}
        // The case's standard error is a file that the case shares with the process.
        let sentence = Case.sentence(in: Case.contents(STDERR_FILENO)) ?? ""
        try require(status == 0, "process \(number) ended with status \(status): \(sentence)")
    }
}

/// One thread creates a loop while another checks whether the reserve is complete.
@Sendable func anyMoment() throws {
    try tryInProcesses(200) {
        try withFullProcess { loop, _, _ in
            useReserve(loop)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let done = Counter()
            let maker = try startThread {
                _ = RunLoop.current
                done.increment()
            }
            while done.value == 0 { _ = loop.run(until: .distantPast) }
            try maker.join()
        }
    }
}

/// Each thread creates the loop or finds it; the channel in reserve is the only one.
@Sendable func lastDescriptor() throws {
    try tryInProcesses(200) {
        try withFullProcess { _, _, _ in
            let count = 4
            let ready = Counter()
            let loops = Mutex<Set<ObjectIdentifier>>([])
            let threads = try (0..<count).map { _ in
                try startThread {
                    ready.increment()
                    while ready.value < count { sched_yield() }  // ends: when all threads are here
                    let loop = RunLoop.main
                    loops.withLock { _ = $0.insert(ObjectIdentifier(loop)) }
                }
            }
            for thread in threads { try thread.join() }
            try require(loops.withLock(\.count) == 1, "there are several main loops")
        }
    }
}

/// The limit is lowered after the sources were created, and many sources share a descriptor.
@Sendable func manySources() throws {
    let ends = try Ends()
    let own = (0..<150).map { _ in dup(ends.near) }
    let descriptors = own + Array(repeating: ends.near, count: 150)
    let seen = descriptors.map { _ in Counter() }
    let sources = try zip(descriptors, seen).map { descriptor, seen in
        try RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in seen.increment() }
    }
    try withFullProcess { loop, _, _ in
        useReserve(loop)
        for source in sources { loop.add(source, forMode: "many") }
        let filler = try startThread {
            usleep(20_000)
            try ends.fill()
        }
        run(loop, "many") { seen.allSatisfy { $0.value > 0 } }
        try filler.join()
        let served = seen.count { $0.value > 0 }
        try require(served == seen.count, sources, "\(served) of \(seen.count) sources were served")
        _ = ends.empty()
        for _ in 0..<20 {
            let stopper = try startThread { loop.stop(sticky: true) }
            try require(loop.run(mode: "many", for: patience) == .stopped, "the stop is lost")
            try stopper.join()
        }
        for source in sources { source.invalidate() }
    }
}

@Sendable func turns() throws {
    let both = try [Ends(), Ends()]
    let seen = [Counter(), Counter()]
    // No handler reads, so both sources are ready at every check.
    let sources = try zip(both, seen).map { ends, seen in
        try RunLoop.DescriptorSource(descriptor: ends.near, events: .read) { _, _ in seen.increment() }
    }
    try withFullProcess { loop, _, _ in
        useReserve(loop)
        for source in sources { loop.add(source, forMode: "turns") }
        for ends in both { try ends.fill() }
        for _ in 0..<10 {
            let result = loop.run(mode: "turns", until: .now.advanced(by: patience), returnAfterSourceHandled: true)
            try require(result == .handledSource, sources, "\(result)")
        }
        try require(seen.map(\.value) == [5, 5], sources, "served \(seen.map(\.value)) times")
        for source in sources { source.invalidate() }
    }
}

@Sendable func fewDescriptors() throws {
    try withFullProcess { loop, _, all in
        useReserve(loop)
        let alive = loop.keepAlive()
        defer { alive.cancel() }
        all.all.free(3)
        let function = (0..<Int32(faults_function_count())).first { String(cString: faults_function_name($0)) == "eventfd" }!
        faults_arm(-1, 0, 0, 0)
        let start = RunLoop.Instant.now
        for _ in 0..<300 { _ = loop.run(until: .distantPast) }
        let tries = 2 + start.duration(to: .now) / .milliseconds(500)
        faults_disarm()
        let calls = withUnsafeBytes(of: faults_report()!.pointee.calls) { $0.bindMemory(to: UInt32.self)[Int(function)] }
        try require(Double(calls) <= 6 * tries, "\(calls) descriptors were opened in 300 runs")
    }
}

/// Two threads try in vain to create bases. Each try takes all free descriptors for a moment. Other threads need one descriptor each.
@Sendable func fewForMany() throws {
    try withFullProcess { loop, _, all in
        useReserve(loop)
        let (done, held) = (Counter(), Counter())
        // This loop has the channel that was in reserve.
        let holder = try startThread {
            _ = RunLoop.current
            held.increment()
            while done.value == 0 { usleep(1_000) }  // ends: with the case
        }
        while held.value == 0 { usleep(1_000) }  // ends: when the thread has its loop
        all.all.free(7)
        let triers = try (0..<2).map { _ in
            try startThread {
                while done.value == 0 {  // ends: with the case
                    do {
                        _ = try RunLoopThread(name: "none")
                        throw Wrong(text: "a thread was made of seven descriptors")
                    } catch RunLoop.SourceError.system(_, EMFILE) {}
                }
            }
        }
        try tryOften(2_000) { _ in try startThread { _ = RunLoop.current }.join() }
        done.increment()
        for trier in triers { try trier.join() }
        try holder.join()
    }
}
