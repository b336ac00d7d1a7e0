// The slowest callouts of one loop, as metrics.

#if Metrics

import CoreMetrics
import EventLoop

/// A gauge and a counter for each site in the list of the slowest callouts, which is short. The metrics of a site that has left the list
/// are destroyed.
///
/// Labels of items are no dimension: a program that labels an item for each connection would make metrics without end.
struct SlowestCalloutsMeter: Sendable {
    private struct Site: Hashable {
        let kind: RunLoop.Recording.Kind
        let createdAt: String?
    }

    private struct Meters {
        let duration: Gauge
        var count: DeltaCounter
    }

    private let labels: MetricLabels
    private var sites: [Site: Meters] = [:]

    init(_ labels: MetricLabels) { self.labels = labels }

    mutating func report(_ slowest: [RunLoop.SlowCallout]) {
        var present: Set<Site> = []
        for callout in slowest {
            let site = Site(kind: callout.kind, createdAt: callout.createdAt)
            // Slowest first: of two entries for one site and kind, the first counts.
            guard present.insert(site).inserted else { continue }
            var meters = sites[site] ?? makeMeters(site)
            meters.duration.record(callout.duration.inSeconds)
            // A site that has left the list and entered it again is counted from its entry on.
            meters.count.report(restarting: callout.count)
            sites[site] = meters
        }
        for (site, meters) in sites where !present.contains(site) {
            destroy(meters)
            sites[site] = nil
        }
    }

    func destroy() { for meters in sites.values { destroy(meters) } }

    private func makeMeters(_ site: Site) -> Meters {
        let dimensions = [("kind", site.kind.rawValue), ("site", site.createdAt ?? "")]
        return Meters(
            duration: labels.gauge("slowest_callout_seconds", dimensions), count: labels.counter("slowest_callouts_total", dimensions))
    }

    private func destroy(_ meters: Meters) {
        meters.duration.destroy()
        meters.count.destroy()
    }
}

#endif
