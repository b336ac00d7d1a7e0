// A backend for swift-metrics, and its text form for Prometheus. Use a library for this in your own program; this one shows how it works.

import CoreMetrics
import Synchronization

/// Every metric by its name and its labels. Thread-safe.
final class Exposition: MetricsFactory {
    private struct Key: Hashable {
        let name: String
        let labels: String
    }

    private let metrics = Mutex<[Key: Metric]>([:])

    /// A line for each figure, in the order of the names.
    var text: String {
        let all = metrics.withLock { $0 }
        var (text, last) = ("", "")
        for (key, metric) in all.sorted(by: { ($0.key.name, $0.key.labels) < ($1.key.name, $1.key.labels) }) {
            if key.name != last { text += "# TYPE \(key.name) \(metric.kind)\n" }
            last = key.name
            text += metric.lines(key.name, key.labels)
        }
        return text
    }

    private func metric(_ kind: Metric.Kind, _ name: String, _ dimensions: [(String, String)]) -> Metric {
        let labels = dimensions.map { "\($0)=\"\(Self.escaped($1))\"" }.joined(separator: ",")
        return metrics.withLock { metrics in
            let key = Key(name: name, labels: labels)
            if let metric = metrics[key] { return metric }
            let metric = Metric(kind)
            metrics[key] = metric
            return metric
        }
    }

    private static func escaped(_ text: String) -> String {
        text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }

    private func forget(_ handler: AnyObject) { metrics.withLock { metrics in metrics = metrics.filter { $0.value !== handler } } }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { metric(.counter, label, dimensions) }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        metric(aggregate ? .summary : .gauge, label, dimensions)
    }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { metric(.summary, label, dimensions) }
    func destroyCounter(_ handler: any CounterHandler) { forget(handler) }
    func destroyRecorder(_ handler: any RecorderHandler) { forget(handler) }
    func destroyTimer(_ handler: any TimerHandler) { forget(handler) }
}

/// A figure, or the sum and the number of many. Thread-safe.
final class Metric: CounterHandler, RecorderHandler, TimerHandler {
    enum Kind: String { case counter, gauge, summary }

    let kind: Kind
    private let state = Mutex((value: 0.0, count: 0))

    init(_ kind: Kind) { self.kind = kind }

    private func add(_ value: Double) { state.withLock { $0 = ($0.value + value, $0.count + 1) } }

    func increment(by amount: Int64) { add(Double(amount)) }
    func reset() { state.withLock { $0 = (0, 0) } }
    func record(_ value: Int64) { record(Double(value)) }
    func record(_ value: Double) {
        if kind == .summary { add(value) } else { state.withLock { $0.value = value } }
    }
    func recordNanoseconds(_ duration: Int64) { add(Double(duration) / 1e9) }

    func lines(_ name: String, _ labels: String) -> String {
        let (value, count) = state.withLock { $0 }
        let labels = labels.isEmpty ? "" : "{\(labels)}"
        if kind != .summary { return "\(name)\(labels) \(value)\n" }
        return "\(name)_sum\(labels) \(value)\n\(name)_count\(labels) \(count)\n"
    }
}
