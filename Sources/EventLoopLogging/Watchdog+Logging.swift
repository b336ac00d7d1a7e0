// Stalls for swift-log.

#if Logging

public import EventLoop
public import EventLoopObserving
public import Logging

extension RunLoop.Watchdog {
    /// A watchdog that logs each stall, once and while it lasts.
    ///
    /// The message is "a callout stalls its run loop". The metadata are:
    ///
    /// | Key | Value |
    /// |---|---|
    /// | `loop` | what `name` returns; if that is nil, the name of the loop's `RunLoopThread`, or `main`; otherwise `RunLoop 3` |
    /// | `kind`, `label` | of the callout, and of the item that was called |
    /// | `site` | `file:line` where the item was made or the closure was queued |
    /// | `duration_ms`, `processor_time_ms` | so far, in milliseconds |
    /// | `backtrace` | an array of at most eight lines: `Stall.summary`, with the program's own functions first |
    ///
    /// `label`, `site` and `backtrace` are left out if they are unknown. Labels are the program's own text: a log handler that writes
    /// lines has to escape them.
    ///
    /// - Parameters:
    ///   - threshold: how long a callout may take.
    ///   - logger: is called on the watchdog's thread.
    ///   - level: of the messages.
    ///   - name: the name of a loop, for the metadata. Called on the watchdog's thread.
    public convenience init(
        threshold: Duration = .milliseconds(250), logger: Logger, level: Logger.Level = .warning,
        name: @escaping @Sendable (RunLoop) -> String? = { _ in nil }
    ) {
        self.init(threshold: threshold) { stall in
            var metadata: Logger.Metadata = [
                "loop": "\(name(stall.loop) ?? stall.loopName ?? descriptiveName(of: stall.loop))",
                "kind": "\(stall.kind.rawValue)",
                "duration_ms": "\(milliseconds(stall.duration))",
                "processor_time_ms": "\(milliseconds(stall.processorTime))",
            ]
            if let label = stall.label { metadata["label"] = "\(label)" }
            if let site = stall.createdAt { metadata["site"] = "\(site)" }
            if !stall.summary.isEmpty { metadata["backtrace"] = .array(stall.summary.map { .string($0) }) }
            logger.log(level: level, "a callout stalls its run loop", metadata: metadata)
        }
    }
}

/// The first words of the loop's description: `RunLoop 1 (main)`.
private func descriptiveName(of loop: RunLoop) -> String {
    String(loop.debugDescription.prefix { $0 != "," && $0 != "\n" })
}

/// With three decimals.
private func milliseconds(_ duration: Duration) -> String {
    let microseconds = max(0, Int64(duration / .microseconds(1)))
    let fraction = "\(microseconds % 1_000)"
    return "\(microseconds / 1_000)." + String(repeating: "0", count: 3 - fraction.count) + fraction
}

#endif
