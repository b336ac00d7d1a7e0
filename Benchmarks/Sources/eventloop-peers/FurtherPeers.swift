// Which peer joins which case. A peer that this build lacks is listed with the reason.

enum FurtherPeers {
    /// The cases with all their contenders.
    static var catalog: [Case] {
        var joining: [String: [Contender]] = [:]
        for (id, contender) in all { joining[id, default: []].append(contender) }
        // The programs of W8.start are products of the library's package.
        let cases = Catalog.all.filter { $0.id != "W8.start" } + W16HTTP.cases + W19Hosted.cases
        let unknown = Set(joining.keys).subtracting(cases.map(\.id))
        precondition(unknown.isEmpty, "no case is called \(unknown.sorted())")
        return cases.map { measured in
            var measured = measured
            measured.contenders += joining[measured.id] ?? []
            return measured
        }
    }

    static var growths: [Growth] {
        #if HAS_LIBUV
        GrowthCatalog.adding("libuv", to: GrowthCatalog.all, LibuvPeers.growth)
        #else
        GrowthCatalog.all
        #endif
    }

    static var missing: [String] {
        var missing = ["W8.start, which eventloop-perf measures"]
        #if !HAS_LIBUV
        missing.append("libuv, because its header uv.h was not found when this was built (libuv1-dev)")
        #endif
        #if !HAS_LIBEV
        missing.append("libev, because its header ev.h was not found when this was built (libev-dev)")
        #endif
        #if !HAS_GLIB
        missing.append("GLib, because its header glib.h was not found when this was built (libglib2.0-dev)")
        #endif
        if W16HTTP.wrk == nil { missing.append("W16, because the program wrk is not installed (Debian's package wrk)") }
        return missing
    }

    private static var all: [(String, Contender)] {
        var all = NIOPeers.all + NIOStreams.all
        #if HAS_LIBUV
        all += LibuvPeers.all
        #endif
        #if HAS_LIBEV
        all += LibevPeers.all
        #endif
        #if HAS_GLIB
        all += GLibPeers.all
        #endif
        return all
    }

    // MARK: The parameters of the cases

    static let cascades: [(pipes: Int, active: Int)] = [(100, 1), (100, 100), (1_000, 1), (1_000, 100)]
    static let timers: [(count: Int, name: String)] = [(1_000, "t1k"), (10_000, "t10k"), (100_000, "t100k"), (1_000_000, "t1m")]

    /// W3 on a library in which one C function changes timers.
    static func timerCases(
        _ name: String, _ change: @escaping @Sendable (W3Timers.Change, Int, Int) -> Measurement
    ) -> [(String, Contender)] {
        let kinds: [(String, W3Timers.Change, [Int])] = [
            ("W3a.rearm", .rearm, [1_000, 100_000, 1_000_000]), ("W3a.cancel", .cancel, [1_000, 100_000, 1_000_000]),
            ("W3a.make", .make, [1_000, 100_000]), ("W3c.push", .push, [1_000, 10_000, 100_000]),
        ]
        return kinds.flatMap { id, kind, counts in
            timers.filter { counts.contains($0.count) }.map { timers in
                ("\(id).\(timers.name)", Contender(name) { change(kind, timers.count, $0) })
            }
        }
    }
}
