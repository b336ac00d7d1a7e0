// Detects growth: compares the median of the run's second quarter with that of the last. Caches fill in the first quarter.

/// A quantity, sampled throughout the run.
struct Series {
    let name: String
    /// The limit for the last quarter's median, given the second quarter's.
    let allowed: (_ before: Double) -> Double
    var values: [Double] = []

    init(_ name: String, allowed: @escaping (Double) -> Double) {
        self.name = name
        self.allowed = allowed
    }

    func quarter(_ number: Int) -> Double {
        let length = values.count / 4
        return median(Array(values[(number - 1) * length..<number * length])) ?? 0
    }
}

struct Verdict {
    // The reasons for these tolerances. The program makes some 14,000 requests a second, so a leak of 100 bytes in one of ten adds 140 KB a
    // second: 8 MB between the two medians of a run of two minutes. Without a leak, the figure varies by the requests that are waiting at
    // the moment and by one request of 1 MiB.
    var allocated = Series("allocated, KiB") { $0 * 1.05 + 512 }
    // Pages that the allocator keeps. Its arenas fill over the first minutes, with the peak number of busy threads.
    var resident = Series("resident, KiB") { $0 * 1.10 + 4096 }
    // Connections, children and threads come and go several times in a sample. A leak in one of a hundred of them is 30 a minute.
    var descriptors = Series("descriptors") { $0 * 1.05 + 6 }
    var threads = Series("threads") { $0 * 1.05 + 3 }
    var control = Series("a thread's wake-up, µs") { _ in .infinity }
    // Other programs slow this machine down at times. They slow down a thread without a loop as much, so its wake-up time is the measure. A
    // list that grows with the run costs more than twice that time plus the noise that a busy machine adds to one of two medians.
    var quiet: Series
    var busy: Series
    var lateness: Series

    init() {
        quiet = Series("response of an idle loop, µs") { $0 * 2 + 1_000 }
        busy = Series("response of a busy loop, µs") { $0 * 2 + 2_000 }
        lateness = Series("lateness of a timer, µs") { $0 * 2 + 2_000 }
    }

    mutating func add(_ sample: Sample, _ response: Response, _ timerLateness: Delays) {
        allocated.values.append(sample.allocated / 1024)
        resident.values.append(sample.resident / 1024)
        descriptors.values.append(sample.descriptors)
        threads.values.append(sample.threads)
        for (delays, series) in [
            (response.control, \Verdict.control), (response.quiet, \.quiet), (response.busy, \.busy), (timerLateness, \.lateness),
        ] {
            if let delay = delays.take() { self[keyPath: series].values.append(delay) }
        }
    }

    /// Prints the table. Returns false if a quantity has grown.
    func print() -> Bool {
        var hasHeld = true
        // The factor by which the machine has become slower.
        let slower = max(1, control.quarter(2) > 0 ? control.quarter(4) / control.quarter(2) : 1)
        Swift.print(pad("", 46) + pad("second quarter", 16) + pad("last quarter", 16) + "allowed")
        for (series, isTime) in [
            (allocated, false), (resident, false), (descriptors, false), (threads, false), (control, false), (quiet, true), (busy, true),
            (lateness, true),
        ] {
            let (before, after) = (series.quarter(2), series.quarter(4))
            let allowed = series.allowed(before) * (isTime ? slower : 1)
            let isGood = series.values.count >= 16 && after <= allowed
            hasHeld = hasHeld && isGood
            let limit = allowed.isFinite ? "\(Int(allowed))" : "-"
            Swift.print(pad(series.name, 46) + pad("\(Int(before))", 16) + pad("\(Int(after))", 16) + limit + (isGood ? "" : "   GROWN"))
        }
        return hasHeld
    }
}

func pad(_ text: String, _ width: Int) -> String { text + String(repeating: " ", count: max(1, width - text.count)) }
