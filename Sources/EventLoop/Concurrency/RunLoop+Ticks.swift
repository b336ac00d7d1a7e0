extension RunLoop {
    /// A tick every `interval` of this loop's time, on a grid that starts with the iteration. An interval below 0.1 ms counts as 0.1 ms.
    ///
    /// Each iterator has its own timer in `mode` of this loop (by default, all common modes), made with the iterator. The timer is removed when the
    /// iteration ends, its task is cancelled, or the iterator is released. A slow task gets one tick that stands for several. While the loop does not
    /// run in the mode, there are none. The sequence ends with the loop. A tick may be late by `tolerance`, at most half the interval. Thread-safe.
    ///
    /// ```
    /// for await tick in loop.ticks(every: .seconds(1)) { print(tick.date, tick.count) }
    /// ```
    public func ticks(
        every interval: Duration, tolerance: Duration = .zero, mode: Mode = .common, file: StaticString = #fileID, line: UInt = #line
    ) -> Ticks {
        let site = CreationSite(file, line)
        return Ticks { [self] channel in
            let end = ReleaseNotifier { channel.end() }
            let nanoseconds = max(interval.saturatedNanoseconds, Timer.shortestInterval)
            let timer = Timer(
                date: now().nanoseconds.addingSaturated(nanoseconds), interval: nanoseconds, tolerance: tolerance.saturatedNanoseconds,
                endsWithLoop: true, label: "ticks for a task", site: site
            ) { timer in
                withExtendedLifetime(end) {
                    channel.post(Ticks.Tick(date: timer.nextFire, count: 1)) { waiting, new in
                        waiting = Ticks.Tick(date: new.date, count: waiting.count + new.count)
                    }
                }
            }
            channel.connect { timer.invalidate() }
            // An ended loop refuses the timer. Its handler is released, which ends the sequence.
            if !add(timer, forMode: mode) { timer.invalidate() }
        }
    }

    /// The result of `ticks(every:)`. Any number of tasks may iterate it, each with its own timer.
    public struct Ticks: AsyncSequence, Sendable {
        /// One fire of the timer, or several that a slow task has missed.
        public struct Tick: Sendable, Hashable {
            /// The date of the grid that fired last, in the loop's time.
            public var date: Instant
            /// How many fires it stands for. Dates that the loop itself has skipped, because it was busy, do not count, as with any timer.
            public var count: Int
            /// Makes a tick: for tests of code that takes ticks.
            public init(date: Instant, count: Int) { (self.date, self.count) = (date, count) }
        }

        public typealias Element = Tick
        public typealias Failure = Never
        let connect: @Sendable (SingleElementChannel<Tick>) -> Void
        /// Starts the timer.
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: ChannelReader(connect: connect)) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<Tick>
            /// The next tick; nil if the task is cancelled or the loop has ended.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> Tick? {
                try? await reader.channel.next(isolation: actor)  // never fails
            }
        }
    }
}
