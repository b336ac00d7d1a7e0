// Likely mistakes with timers, apart from any loop.

extension RunLoop.Timer {
    /// The interval for one that is too short.
    @inline(never)
    static func replacedInterval(
        _ asked: Int64, _ ifNegative: Int64, _ label: String?, _ site: CreationSite
    ) -> Int64 { /* DOES CALLOUT */
        let replacement = asked > 0 ? shortestInterval : ifNegative
        let effect = replacement == 0 ? "fires only once" : "fires every 0.1 ms"
        Warnings.report(
            .shortInterval, label: label, site: site,
            "a repeating timer with an interval of \(asked % 1_000 == 0 ? "\(asked / 1_000) µs" : "\(asked) ns") \(effect); pass an interval of at least 0.1 ms"
                + (asked > 0 ? "" : ", or make a timer that fires once"))
        return replacement
    }

    /// The timer is released valid, and was never in a mode.
    @inline(never)
    func warnOfRelease() { /* DOES CALLOUT */
        Warnings.report(
            .unusedItem, label: label, site: site,
            "a timer was released before it was added to a run loop, so it never fires; add it to the loop, or use Timer.scheduled")
    }

    /// The interval of a repeating timer whose module has other units.
    package static func honouredInterval(_ asked: Duration, _ file: StaticString, _ line: UInt) -> Duration {
        .nanoseconds(honouredInterval(asked.saturatedNanoseconds, ifNegative: shortestInterval, nil, CreationSite(file, line)))
    }
}
