// The fires of a repeating timer, for a task.

extension RunLoop {
    /// A tick every `interval` of this loop's time, on a grid that begins when the iteration does; an interval below 0.1 ms counts as 0.1
    /// ms.
    ///
    /// Each iterator has a timer of its own in `mode` of this loop (by default all common modes), made with the iterator and gone when the
    /// iteration ends, its task is cancelled, or the iterator is let go of. A task that is slower than the ticks gets one that stands for
    /// several: nothing is queued. While the loop does not run in the mode there are no ticks. When the loop has ended the sequence ends.
    ///
    /// ```
    /// for await tick in loop.ticks(every: .seconds(1)) { print(tick.date, tick.count) }
    /// ```
    ///
    /// Thread-safe. `tolerance` is how late a tick may be, as a timer's: at most half the interval.
    public func ticks(
        every interval: Duration, tolerance: Duration = .zero, mode: Mode = .common, file: StaticString = #fileID, line: UInt = #line
    ) -> Ticks {
        Ticks(loop: self, interval: interval, tolerance: tolerance, mode: mode, site: CreationSite(file, line))
    }

    /// What `ticks(every:)` makes: a sequence that any number of tasks may iterate, each with a timer of its own.
    public struct Ticks: AsyncSequence, Sendable {
        /// One fire of the timer, or several that a slow task has missed.
        public struct Tick: Sendable, Hashable {
            /// The latest slot of the grid that was fired, in the loop's time.
            public var date: Instant
            /// How many fires it stands for; slots that the loop itself was too busy for are not among them, as with any timer.
            public var count: Int

            public init(date: Instant, count: Int) { (self.date, self.count) = (date, count) }
        }

        public typealias Element = Tick
        public typealias Failure = Never

        let loop: RunLoop
        let interval: Swift.Duration, tolerance: Swift.Duration
        let mode: Mode
        let site: CreationSite

        /// Starts the timer.
        public func makeAsyncIterator() -> AsyncIterator {
            let channel = SingleElementChannel<Tick>()
            let end = ReleaseNotifier { channel.end() }
            let nanoseconds = Swift.max(interval.saturatedNanoseconds, Timer.shortestInterval)
            let timer = Timer(
                date: loop.timeForOthers().nanoseconds.addingSaturated(nanoseconds), interval: nanoseconds,
                tolerance: tolerance.saturatedNanoseconds, order: 0, endsWithLoop: true, label: "ticks for a task", site: site
            ) { timer in
                withExtendedLifetime(end) {
                    channel.post(Tick(date: timer.nextFire, count: 1)) { waiting, new in
                        waiting = Tick(date: new.date, count: waiting.count + new.count)
                    }
                }
            }
            channel.connect { timer.invalidate() }
            // An ended loop refuses it; its handler goes, and with it the sequence ends.
            if !loop.add(timer, forMode: mode) { timer.invalidate() }
            return AsyncIterator(reader: ChannelReader(channel))
        }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<Tick>

            /// The next tick; nil when the task is cancelled or the loop has ended.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> Tick? {
                // Nobody ends this channel with a failure.
                try? await reader.channel.next(isolation: actor)
            }
        }
    }
}
