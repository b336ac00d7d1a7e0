// What reads the pictures in tests.

import Foundation

/// An event of a trace, as a viewer reads it.
struct TraceEvent {
    let fields: [String: Any]

    var phase: String { fields["ph"] as? String ?? "" }
    var name: String { fields["name"] as? String ?? "" }
    var category: String { fields["cat"] as? String ?? "" }
    var thread: Int { fields["tid"] as? Int ?? -1 }
    var id: Int { fields["id"] as? Int ?? -1 }
    var arguments: [String: Any] { fields["args"] as? [String: Any] ?? [:] }
    /// In nanoseconds.
    var start: Int64 { nanoseconds("ts") }
    var end: Int64 { start + nanoseconds("dur") }

    private func nanoseconds(_ name: String) -> Int64 { Int64(((fields[name] as? Double ?? -1) * 1000).rounded()) }
}

/// Reads a trace, and checks what every event must have.
func readTrace(_ text: String) throws -> [TraceEvent] {
    let trace = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
    return (trace?["traceEvents"] as? [[String: Any]] ?? []).map { TraceEvent(fields: $0) }
}

/// The data of a page, as its script reads it.
struct PageData: Decodable {
    struct Loop: Decodable {
        let name: String
        let overwritten: Int
        let since: Int64
        let events: [Int]
    }
    let kinds: [String]
    let loops: [Loop]
    let arrows: [Int]
    let groups: [Int]
    let strings: [String]

    /// Kind, label, start and length of each event of a loop.
    func events(of loop: Int) -> [String] {
        var start = 0
        return stride(from: 0, to: loops[loop].events.count, by: 3).map { index in
            let group = loops[loop].events[index] * 5
            start += loops[loop].events[index + 1]
            let label = groups[group + 3] < 0 ? "" : " " + strings[groups[group + 3]]
            return "\(kinds[groups[group]])\(label) \(start)+\(loops[loop].events[index + 2])"
        }
    }
}

/// The text of the element with the page's data.
func dataText(of page: String) -> Substring {
    let parts = page.components(separatedBy: "<script type=\"application/json\" id=\"data\">")
    guard parts.count == 2, let end = parts[1].range(of: "</script>") else { return "" }
    return parts[1][..<end.lowerBound]
}

func readData(of page: String) throws -> PageData { try JSONDecoder().decode(PageData.self, from: Data(dataText(of: page).utf8)) }
