// The code of docs/foundation.md, compiled. DocumentedCodeTests compares each block of the page with this file: change both.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport

final class Reminder: Sendable {
    private let timer: Timer

    init(after delay: TimeInterval, _ body: @escaping @Sendable () -> Void) {
        timer = Timer(timeInterval: delay, repeats: false) { _ in body() }
        timer.tolerance = delay / 10
        RunLoop.main.add(timer, forMode: .common)
    }

    var date: Date { timer.fireDate }
}

func waitForFlag(_ flag: @Sendable () -> Bool, on loop: RunLoop) {
    let limit = Date(timeIntervalSinceNow: 5)
    while !flag() && Date() < limit && loop.run(mode: .default, before: limit) {}
}

/// What the other thread has found.
final class Slot: Sendable {
    private let value = Box<Int?>(nil)

    var isEmpty: Bool { value.value == nil }
    func store(_ found: Int) { value.value = found }
}

func waitForThread(_ worker: (@escaping @Sendable (Int) -> Void) -> Void, on loop: RunLoop, into slot: Slot) {
    let alive = loop.keepAlive()
    worker { result in
        loop.perform {
            slot.store(result)
            loop.stop()
        }
    }
    while slot.isEmpty { _ = loop.run(mode: .default, before: .distantFuture) }
    alive.cancel()
}

@MainActor final class Display {
    private(set) var ticks = 0

    func tick() { ticks += 1 }
}

@MainActor func start(_ clock: Display) {
    Timer.scheduledTimer(withTimeInterval: 1, repeats: true) { _ in
        MainActor.assumeIsolated { clock.tick() }
    }
}

func tolerances(of timer: Timer) -> (Duration, TimeInterval) {
    timer.tolerance = 0.1  // seconds
    timer.tolerance = .milliseconds(100)  // a Duration
    let inferred = timer.tolerance  // a Duration
    let seconds: TimeInterval = timer.tolerance
    return (inferred, seconds)
}
