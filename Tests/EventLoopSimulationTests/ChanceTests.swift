// Rules: libc's functions for chance and time are the seed's inside a run, and the process's own outside.

import EventLoopSimulation
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

#if os(Linux)
private struct Source: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var draw: @Sendable () -> UInt64

    static let all = [
        // The headers of a glibc before 2.36 lack the first three.
        Source(testDescription: "arc4random") {
            typealias Draw = @convention(c) () -> UInt32
            return UInt64(unsafeBitCast(dlsym(nil, "arc4random"), to: Draw.self)())
        },
        Source(testDescription: "arc4random_buf") {
            typealias Fill = @convention(c) (UnsafeMutableRawPointer, Int) -> Void
            var number: UInt64 = 0
            unsafeBitCast(dlsym(nil, "arc4random_buf"), to: Fill.self)(&number, 8)
            return number
        },
        Source(testDescription: "arc4random_uniform") { UInt64(drawUniform(below: 1_000_000_000)) },
        Source(testDescription: "random") { UInt64(random()) },
        Source(testDescription: "rand") { UInt64(rand()) },
    ]
}

/// One after another: the state of `random` is the process's.
@Suite(.whereSimulated, .serialized, .bounded)
struct ChanceTests {
    // They were other numbers in each run, or went on where the last run had left them.
    @Test(arguments: Source.all)
    fileprivate func `a function of libc draws the same numbers with the same seed`(source: Source) async throws {
        let drawn = Mutex<[[UInt64]]>([])
        for seed in [3, 3, 4] as [UInt64] {
            try await simulate(seeds: seed...seed) { _ in
                let numbers = (0..<4).map { _ in source.draw() }
                drawn.withLock { $0.append(numbers) }
            }
        }
        let all = drawn.withLock { $0 }
        #expect(all[0] == all[1])
        #expect(all[0] != all[2])
    }

    @Test func `a bound of arc4random_uniform is never reached, and zero and one give zero`() async throws {
        try await simulate(seeds: 1...3) { _ in
            try #require(drawUniform(below: 0) == 0)
            try #require(drawUniform(below: 1) == 0)
            for bound in [2, 3, 7, 1 << 31, (1 << 31) + 1, .max] as [UInt32] {
                for _ in 0..<100 { try #require(drawUniform(below: bound) < bound) }
            }
        }
    }

    @Test func `a program that seeds random in a run gets the numbers of that seed, and changes nothing outside`() async throws {
        srandom(42)
        let expected = (0..<4).map { _ in random() }
        srandom(7)
        let next = random()
        srandom(7)
        try await simulate(seeds: 1...3) { _ in
            for _ in 0..<2 {
                srandom(42)
                let numbers = (0..<4).map { _ in random() }
                try #require(numbers == expected)
                srand(42)
                let others = (0..<4).map { _ in Int(rand()) }
                try #require(others == expected)
            }
        }
        let number = random()
        #expect(number == next)
    }

    @Test func `timespec_get has the time of the run`() async throws {
        try await simulate(seeds: 1...3) { _ in
            let start = wallTime()
            try #require(start == time(nil))
            try await Task.sleep(for: .seconds(3_600))
            try #require(wallTime() - start == 3_600)
        }
        var unchanged = timespec(tv_sec: 5, tv_nsec: 6)
        let answer = timespec_get(&unchanged, 0)
        #expect(answer == 0 && unchanged.tv_sec == 5 && unchanged.tv_nsec == 6)
    }
}

private func drawUniform(below bound: UInt32) -> UInt32 {
    typealias Draw = @convention(c) (UInt32) -> UInt32
    return unsafeBitCast(dlsym(nil, "arc4random_uniform"), to: Draw.self)(bound)
}

/// In whole seconds.
private func wallTime() -> Int {
    var now = timespec()
    _ = timespec_get(&now, 1)  // TIME_UTC
    return now.tv_sec
}
#endif
