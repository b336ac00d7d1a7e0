// The slowest callouts of one loop, as metrics.

#if Metrics

import CoreMetrics
import EventLoop

/// A gauge and a counter for each site in the list of the slowest callouts, which is short. The metrics of a site that has left the list
/// are destroyed.
///
/// Labels of items are no dimension: a program that labels an item for each connection would make metrics without end.
final class SlowestCalloutsMeter: Sendable {
    private struct Site: Hashable, Sendable {
        let kind: RunLoop.Recording.Kind
        let createdAt: String?
    }

    private struct Meters: Sendable {
        let duration: Gauge
        let count: DeltaCounter
    }

    private let labels: MetricLabels
    private let sites = LoopLock<[Site: Meters]>([:])

    init(_ labels: MetricLabels) { self.labels = labels }

    func report(_ slowest: [RunLoop.SlowCallout]) {
        var present: Set<Site> = []
        for callout in slowest {
            let site = Site(kind: callout.kind, createdAt: callout.createdAt)
            // Slowest first: of two entries for one site and kind, the first counts.
            guard present.insert(site).inserted else { continue }
            let meters = meters(of: site)
            meters.duration.record(callout.duration.inSeconds)
            // A site that has left the list and entered it again is counted from its entry on.
            meters.count.report(restarting: callout.count)
        }
        takeMetrics(except: present).destroyAll()
    }

    func takeMetrics() -> [any DestroyableMetric] { takeMetrics(except: []) }

    private func takeMetrics(except present: Set<Site>) -> [any DestroyableMetric] {
        sites.withLock { sites in
            let taken = sites.filter { !present.contains($0.key) }
            for site in taken.keys { sites[site] = nil }
            return taken.values.flatMap { [$0.duration, $0.count] as [any DestroyableMetric] }
        }
    }

    private func meters(of site: Site) -> Meters {
        if let present = sites.withLock({ $0[site] }) { return present }
        let made = makeMeters(site)
        sites.withLock { $0[site] = made }
        return made
    }

    private func makeMeters(_ site: Site) -> Meters {
        let dimensions = [("kind", site.kind.rawValue), ("site", site.createdAt ?? "")]
        return Meters(
            duration: labels.gauge("slowest_callout_seconds", dimensions), count: labels.counter("slowest_callouts_total", dimensions))
    }
}

#endif
