// Plays many worlds on a few threads, and reports the failures.

import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The choice of worlds: `SMALL_WORLDS=long`, which `make worlds` sets, plays all of them.
let playsAllWorlds = getenv("SMALL_WORLDS").map { String(cString: $0) } == "long"

/// `SMALL_WORLDS_PART=3/20` plays the third twentieth of each test's worlds, taken evenly from all of them.
private let part: (number: Int, of: Int) = {
    let numbers = getenv("SMALL_WORLDS_PART").map { String(cString: $0).split(separator: "/").compactMap { Int($0) } } ?? []
    return numbers.count == 2 && numbers[1] > 0 ? (numbers[0], numbers[1]) : (1, 1)
}()

var playsEveryPart: Bool { part.of == 1 }

/// A sanitizer makes each world ten times as slow, so the short form plays one world in `worldsStep`.
let worldsStep = playsAllWorlds ? 1 : isUnderThreadSanitizer || isUnderAddressSanitizer ? 16 : 1

/// The number of worlds played at once. The short form runs beside the rest of the suite.
let workerCount = playsAllWorlds ? 2 : 1

/// Plays the worlds and records an issue for each that fails, up to twenty.
func checkAll(_ count: Int, _ world: @escaping @Sendable (Int) -> World, _ check: @escaping @Sendable (World) throws -> String?) throws {
    let progress = Progress(count)
    let threads = (0..<workerCount).map { worker in
        plainThread {
            defer { progress.workerEnded() }
            while let index = progress.take(worker) {  // ends: the worlds are counted
                let world = world(index)
                // Under the thread sanitizer, a signal that a thread sends to itself arrives late.
                if isUnderThreadSanitizer && world.items.contains(where: { $0.kind == .signal }) { continue }
                progress.note(world, worker)
                if let complaint = try check(world) { progress.fail(world, complaint) }
            }
        }
    }
    progress.waitForWorkers()
    for thread in threads { try thread.join() }
    print("small worlds: \(count / part.of) played, \(progress.failures.count) failed")
    for failure in progress.failures.prefix(20) { Issue.record(Comment(rawValue: failure)) }
}

private final class Progress: Sendable {
    private struct State {
        var next: Int
        var current: [Int: World] = [:]
        var failures: [String] = []
    }

    private let count: Int
    private let state = Locked(State(next: part.number - 1))
    private let ended = Pipe()
    /// A world takes less than a millisecond.
    private static let patienceMilliseconds: Int32 = 300_000

    init(_ count: Int) { self.count = count }

    var failures: [String] { state.withLock { $0.failures } }

    func take(_ worker: Int) -> Int? {
        state.withLock { state in
            defer { state.next += part.of }
            return state.next < count ? state.next : nil
        }
    }

    func note(_ world: World, _ worker: Int) { state.withLock { $0.current[worker] = world } }

    func fail(_ world: World, _ complaint: String) {
        state.withLock { state in
            state.failures.append(state.failures.count < 20 ? "\(world.source)\n\(complaint)\n\(world.program)" : "")
        }
    }

    func workerEnded() { ended.write() }

    /// If the workers make no progress, ends the process and reports the worlds in progress.
    func waitForWorkers() {
        var left = workerCount
        var seen = -1
        while left > 0 {  // ends: with the workers, or the process
            var entry = pollfd(fd: ended.readEnd, events: Int16(POLLIN), revents: 0)
            if poll(&entry, 1, Self.patienceMilliseconds) > 0 {
                left -= ended.readAll().utf8.count
                continue
            }
            let (next, current) = state.withLock { ($0.next, $0.current) }
            if next == seen {
                fatalError(
                    "a small world does not end; one of\n" + current.values.map { "\($0.source)\n\($0.program)" }.joined(separator: "\n"))
            }
            seen = next
        }
    }
}
