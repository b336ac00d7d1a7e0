// Timers added, removed and moved, on their own thread and from others; and items of all kinds that other threads add, change and
// invalidate.

import EventLoop

final class Timers: Part, @unchecked Sendable {
    private let ends: Account
    private let lateness: Delays
    private let repeating = Number(0)

    init(_ book: Book, lateness: Delays) {
        ends = book.account("timers fired or cancelled")
        self.lateness = lateness
        super.init(book)
    }

    override func start() throws {
        let thread = try thread("timers")
        let loop = thread.runLoop
        for interval in 1...16 {
            let timer = RunLoop.Timer(every: .milliseconds(interval * 3)) { [repeating] _ in repeating.value += 1 }
            loop.add(timer)
        }
        drive(thread, every: .milliseconds(5)) { [self] in
            for index in 0..<8 { one(loop, index) }
        }
    }

    private func one(_ loop: RunLoop, _ index: Int) {
        ends.ask()
        let date = RunLoop.Instant.now + .microseconds(.random(in: 0...40_000))
        let timer = RunLoop.Timer(fireAt: date) { [ends, lateness] _ in
            ends.finish()
            if index == 0 { lateness.add(since: date) }
        }
        loop.add(timer)
        switch index {
        case 1, 2:
            timer.invalidate()
            ends.finish()
        case 3, 4: timer.nextFire = timer.nextFire + .milliseconds(30)
        case 5: timer.nextFire = .now
        case 6: timer.tolerance = .milliseconds(5)
        default: break
        }
    }
}

/// Threads that change the items of other threads' loops.
final class Changes: Part, @unchecked Sendable {
    // SAFETY: `start` sets `busyLoop`, and the same thread reads it.
    private let invalidations: Account
    private let performs: Account
    private let releases: Account
    /// A loop with a high load.
    private(set) var busyLoop: RunLoop?

    override init(_ book: Book) {
        invalidations = book.account("sources invalidated once")
        performs = book.account("signals and bytes of other threads served")
        releases = book.account("handlers released")
        super.init(book)
    }

    override func start() throws {
        let targets = try ["first target", "second target"].map { try thread($0).runLoop }
        busyLoop = targets[0]
        for name in ["first changer", "second changer"] {
            drive(try thread(name), every: .milliseconds(5)) { [self] in
                let target = targets.randomElement()!  // there are two
                customSource(target)
                descriptorSource(target)
                timers(target, targets)
                observer(target)
            }
        }
    }

    /// This thread signals the source; the loop's thread invalidates it.
    private func customSource(_ loop: RunLoop) {
        let handle = Handle<RunLoop.CustomSource>()
        let source = RunLoop.CustomSource { [performs] in
            performs.finish()
            handle.take()?.invalidate()
        }
        handle.give(source)
        watch(source)
        guard loop.add(source) else { return source.invalidate() }
        performs.ask()
        source.signal()
    }

    /// This thread writes to the source and changes it. After the source was served, this thread or the loop's invalidates it.
    private func descriptorSource(_ loop: RunLoop) {
        let pipe = PipePair()
        do {
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { [performs] source, _ in
                pipe.drain()
                performs.finish()
                source.invalidate()
            }
            watch(source)
            loop.add(source)
            source.events = []
            source.events = [.read, .closed]
            loop.add(source, forMode: "elsewhere")
            performs.ask()
            pipe.writeByte()
            loop.remove(source, forMode: "elsewhere")
            // A source that is never written to, and that this thread invalidates at once.
            let idle = PipePair()
            let other = try RunLoop.DescriptorSource(descriptor: idle.readEnd, events: .read) { _, _ in idle.drain() }
            watch(other)
            loop.add(other)
            other.invalidate()
        } catch {
            book.fault("a pipe cannot be watched: \(error)")
        }
    }

    /// Adds the timer, sets its date and invalidates it while the loop may fire it.
    private func timers(_ loop: RunLoop, _ loops: [RunLoop]) {
        let canary = Canary(releases)
        let timer = RunLoop.Timer(after: .milliseconds(.random(in: 0...20))) { _ in canary.touch() }
        loop.add(timer)
        timer.nextFire = .now + .milliseconds(.random(in: 0...20))
        if Bool.random() { timer.invalidate() }
        let second = Canary(releases)
        let repeating = RunLoop.Timer(every: .milliseconds(2)) { _ in second.touch() }
        loop.add(repeating)
        loop.perform(after: .milliseconds(10)) { repeating.invalidate() }
    }

    private func observer(_ loop: RunLoop) {
        let canary = Canary(releases)
        let observer = RunLoop.Observer(activities: .all, repeats: Bool.random()) { _, _ in canary.touch() }
        loop.add(observer)
        loop.perform { observer.invalidate() }
    }

    private func watch(_ source: RunLoop.Source) {
        invalidations.ask()
        source.onInvalidation { [invalidations] in invalidations.finish() }
    }
}
