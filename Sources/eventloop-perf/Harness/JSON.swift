// All results, for programs.

import Glibc

enum JSON {
    static func text(of results: [CaseResult], _ growths: [GrowthResult]) -> String {
        let fields = [
            "\"machine\": \(string(Machine.name))",
            "\"cases\": [\n\(results.map(entry).joined(separator: ",\n"))\n]",
            "\"growth\": [\n\(growths.map(entry).joined(separator: ",\n"))\n]",
        ]
        return "{\n" + fields.joined(separator: ",\n") + "\n}\n"
    }

    private static func entry(_ result: CaseResult) -> String {
        let contenders = result.contenders.map { name, figures in
            "{\"name\": \(string(name)), \"median\": \(number(Spread(figures)?.median)), \"figures\": [\(figures.map(number).joined(separator: ", "))]}"
        }
        let goals = result.measured.goals.map { goal in
            let judgement = result.judge(goal)
            return "{\"peers\": [\(goal.peers.map(string).joined(separator: ", "))], \"ratio\": \(number(goal.ratio)), "
                + "\"measured\": \(number(judgement?.ratio)), \"verdict\": \(string((judgement?.verdict ?? .unknown).rawValue))}"
        }
        return "  {\"id\": \(string(result.measured.id)), \"title\": \(string(result.measured.title)), "
            + "\"unit\": \(string(result.measured.metric.unit)),\n"
            + "   \"contenders\": [\(contenders.joined(separator: ",\n      "))],\n   \"goals\": [\(goals.joined(separator: ", "))]}"
    }

    private static func entry(_ result: GrowthResult) -> String {
        let curves = result.contenders.map { curve in
            let points = curve.points.map { "[\($0.size), \(number($0.cost))]" }.joined(separator: ", ")
            return "{\"name\": \(string(curve.name)), \"exponent\": \(number(curve.slope?.exponent)), "
                + "\"verdict\": \(string((curve.slope?.verdict).map(\.rawValue) ?? "unknown")), \"points\": [\(points)]}"
        }
        return "  {\"id\": \(string(result.id)), \"title\": \(string(result.title)), \"unit\": \"ns\",\n"
            + "   \"contenders\": [\(curves.joined(separator: ",\n      "))]}"
    }

    private static func number(_ value: Double?) -> String {
        guard let value, value.isFinite else { return "null" }
        return String((value * 1_000).rounded() / 1_000)
    }

    /// The names are ours, so only the quote and the backslash need escaping.
    private static func string(_ text: String) -> String {
        "\"" + text.flatMap { $0 == "\"" || $0 == "\\" ? "\\\($0)" : String($0) } + "\""
    }
}

/// The environment on which figures depend.
enum Machine {
    static var name: String {
        let processors = sysconf(Int32(_SC_NPROCESSORS_ONLN))
        return "\(processors) processors, \(model), Linux \(release)"
    }

    private static var release: String {
        var names = utsname()
        uname(&names)
        return withUnsafeBytes(of: names.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }

    private static var model: String {
        let lines = ((try? Terminal.read("/proc/cpuinfo")) ?? "").split(separator: "\n")
        guard let line = lines.first(where: { $0.hasPrefix("model name") }), let colon = line.firstIndex(of: ":") else {
            return "unknown processor"
        }
        return String(line[line.index(after: colon)...].drop { $0 == " " })
    }
}
