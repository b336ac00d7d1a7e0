// Histograms: never more than 6.25 % off, whatever the durations; and those of a loop.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite struct HistogramTests {
    private func histogram(_ nanoseconds: [Int64]) -> RunLoop.Histogram {
        var histogram = RunLoop.Histogram()
        for duration in nanoseconds { histogram.record(.nanoseconds(duration)) }
        return histogram
    }

    /// Every number up to 3,000, and the neighbours of each power of two.
    private static let numbers: [Int64] =
        Array(0...3_000) + (12...61).flatMap { bit in [-1, 0, 1].map { (Int64(1) << Int64(bit)) + $0 } } + [.max]

    @Test func `every number is in the class whose borders enclose it`() {
        for number in Self.numbers.filter({ $0 <= 1 << 62 }) {
            let index = HistogramClass.index(of: UInt64(number))
            #expect(index >= 0 && index < 64 * HistogramClass.inOctave)
            #expect(HistogramClass.first(in: index) <= UInt64(number) && number <= HistogramClass.last(in: index), "\(number)")
        }
    }

    @Test func `a class is at most 3.2 per cent of its numbers wide`() {
        for index in 0..<(62 * HistogramClass.inOctave) {
            let (first, last) = (Double(HistogramClass.first(in: index)), Double(HistogramClass.last(in: index)))
            #expect(last - first <= max(0, 0.032 * (first + 1)))
        }
    }

    @Test func `percentiles are never more than 6.25 per cent above the duration that they stand for, and never below`() {
        for number in Self.numbers {
            let read = histogram([number, number, .max]).percentile(50)
            #expect(read >= .nanoseconds(number) && read <= .nanoseconds(number) + .nanoseconds(number) * 0.0625 + .nanoseconds(1))
        }
    }

    @Test func `percentiles of a hundred known durations`() {
        let histogram = histogram((1...100).map { $0 * 1_000_000 })
        #expect(histogram.count == 100)
        #expect(histogram.maximum == .milliseconds(100))
        #expect(histogram.percentile(100) == .milliseconds(100))
        for percent in [1, 25, 50, 75, 90, 99] {
            let exact = Duration.milliseconds(percent)
            #expect(histogram.percentile(Double(percent)) >= exact && histogram.percentile(Double(percent)) <= exact * 1.0625)
        }
        #expect(histogram.percentile(0) <= .milliseconds(1) * 1.0625)
        #expect(histogram.mean == .nanoseconds(50_500_000))
    }

    @Test func `an empty histogram has zeros`() {
        let empty = RunLoop.Histogram()
        #expect(empty.count == 0)
        #expect([empty.maximum, empty.mean, empty.percentile(0), empty.percentile(100)] == Array(repeating: .zero, count: 4))
        #expect(empty.classes.isEmpty)
    }

    @Test func `merging two is counting both`() {
        let (one, other): ([Int64], [Int64]) = ([5, 70, 1_000_000], [0, 70, 9_000_000_000])
        #expect(histogram(one).merging(histogram(other)) == histogram(one + other))
        #expect(histogram(one).merging(RunLoop.Histogram()) == histogram(one))
        #expect(RunLoop.Histogram().merging(histogram(one)) == histogram(one))
    }

    @Test func `a negative duration counts as zero`() {
        #expect(histogram([-5]) == histogram([0]))
    }

    @Test func `a percentile outside 0 to 100 traps and says so`() async throws {
        let outcome = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = RunLoop.Histogram().percentile(100.5)
        }
        let message = String(decoding: try #require(outcome).standardErrorContent, as: UTF8.self)
        #expect(message.contains("percentile takes a number from 0 to 100"))
    }

    // MARK: Of a loop

    @Test func `live counts in another unit are at most 6.25 per cent off`() {
        for unit in [0.31, 0.5, 1, 3.7] {
            for number: UInt64 in [1, 40, 1_000, 123_457, 9_999_999_999] {
                let live = LiveHistogram()
                for _ in 0..<3 { live.record(number) }
                let read = live.histogram(nanosecondsPerUnit: unit, sum: 3 * number)
                let exact = Double(number) * unit
                #expect(read.count == 3)
                #expect(
                    abs(
                        Double(read.percentile(50).components.attoseconds) / 1e9 + Double(read.percentile(50).components.seconds) * 1e9
                            - exact) <= 0.0625 * exact + 1)
                #expect(read.maximum == .nanoseconds(Int64(exact)))
            }
        }
    }

    @Test func `lateness is how much later than its date each timer was called`() throws {
        let lateness = try inManualTime { loop, clock, _ in
            for date in [10, 20, 30] { loop.add(RunLoop.Timer(fireAt: .ms(Int64(date))) { _ in }) }
            // The first two are called when the third is due, and the third on time.
            clock.advance(by: .milliseconds(30))
            _ = loop.run(for: .zero)
            return loop.statistics.timerLateness
        }
        #expect(lateness.count == 3)
        #expect(lateness.maximum == .milliseconds(20))
        #expect(lateness.mean == .milliseconds(10))
        #expect(lateness.percentile(30) == .zero)
    }

    @Test func `a timer of the distant past is not late`() throws {
        let lateness = try onFreshThread { loop in
            loop.add(RunLoop.Timer(fireAt: .distantPast) { _ in })
            _ = loop.run(for: .zero)
            return loop.statistics.timerLateness
        }
        #expect(lateness.count == 1 && lateness.maximum == .zero)
    }

    @Test func `the hundredth percentile is the maximum, whatever the unit`() {
        for unit in [0.31, 0.334, 0.5, 1, 3.7] {
            for number in stride(from: UInt64(1), to: 20_000, by: 7) {
                let live = LiveHistogram()
                live.record(number)
                let read = live.histogram(nanosecondsPerUnit: unit, sum: number)
                #expect(read.percentile(100) == read.maximum)
            }
        }
    }

    @Test func `numbers beyond the last class of a live histogram count as the longest of them`() {
        let live = LiveHistogram()
        for number: UInt64 in [1 << 44, 1 << 46, 1 << 60] { live.record(number) }
        let read = live.histogram(nanosecondsPerUnit: 1, sum: 0)
        #expect(read.count == 3)
        #expect(read.percentile(30) <= .nanoseconds(Int64(1) << 44) * 1.0625)
        #expect(read.percentile(60) == .nanoseconds(Int64(1) << 60))
    }

    @Test func `a timer behind a slow one in the same batch is as late as it was called`() throws {
        let lateness = try onFreshThread { loop in
            let end = RunLoop.Instant.now
            loop.add(
                RunLoop.Timer(fireAt: end) { _ in
                    // Not a wait for time: the second timer must be later than the first by what this takes.
                    while RunLoop.Instant.now < end + .milliseconds(5) {}
                })
            loop.add(RunLoop.Timer(fireAt: end) { _ in })
            _ = loop.run(for: .zero)
            return loop.statistics.timerLateness
        }
        #expect(lateness.count == 2)
        #expect(lateness.maximum >= .milliseconds(4))
    }

    @Test func `each poll of the kernel ends a stretch, and the run's end ends the last`() throws {
        let statistics = try onFreshThread { loop in
            loop.performBlock {}
            _ = loop.run(for: .zero)
            return loop.statistics
        }
        #expect(statistics.responseDelays.count >= 1)
        #expect(statistics.responseDelays.maximum <= statistics.timeWorking + .nanoseconds(1))
    }

    @Test func `a handler that takes long is a long stretch away from the kernel`() throws {
        let delays = try onFreshThread { loop in
            loop.performBlock {
                let end = RunLoop.Instant.now + .milliseconds(5)
                while RunLoop.Instant.now < end {}
            }
            _ = loop.run(for: .zero)
            return loop.statistics.responseDelays
        }
        #expect(delays.maximum >= .milliseconds(5) && delays.percentile(100) == delays.maximum)
    }
}
