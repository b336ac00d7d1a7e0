// Plays a scenario on both run loops, each on a thread of its own, and compares what they did.

internal import EventLoopTestSupport
internal import Testing

typealias Scenario = @Sendable (Stage) -> Void

/// The rule holds for CFRunLoop and for us: both leave the trace `expected`.
func both(_ expected: String, sourceLocation: SourceLocation = #_sourceLocation, _ scenario: @escaping Scenario) throws {
    try compare(cf: expected, ours: expected, because: nil, sourceLocation, scenario)
}

/// We differ on purpose, for the reason that the section of semantics.md gives.
func differ(
    cf: String, ours: String, because section: String, sourceLocation: SourceLocation = #_sourceLocation, _ scenario: @escaping Scenario
) throws {
    try compare(cf: cf, ours: ours, because: section, sourceLocation, scenario)
}

private func compare(
    cf expectedOfCF: String, ours expectedOfUs: String, because section: String?, _ sourceLocation: SourceLocation,
    _ scenario: @escaping Scenario
) throws {
    let verdict = try complaintOfSlowest {
        let cf = try play(scenario, stretch: $0) { CFEngine() }
        let ours = try play(scenario, stretch: $0) { OurEngine() }
        return complaint(cf: (cf, expectedOfCF), ours: (ours, expectedOfUs), because: section)
    }
    if let verdict { Issue.record(Comment(rawValue: verdict), sourceLocation: sourceLocation) }
}

/// The complaint about the slowest attempt, or nil as soon as an attempt brings none.
///
/// Scenarios run in real time, because CFRunLoop knows no other. On a busy machine a limit of 5 ms can pass between two steps, in which case
/// both loops rightly do something else. A scenario that brings a complaint is therefore played again with its time stretched.
func complaintOfSlowest(_ play: (_ stretch: Double) throws -> String?) rethrows -> String? {
    var complaint: String?
    for stretch in [1, 20, 400] as [Double] {
        complaint = try play(stretch)
        if complaint == nil { return nil }
    }
    return complaint
}

typealias Traces = (did: String, wasToDo: String)

/// What is wrong, with all four traces; nil when nothing is.
func complaint(cf: Traces, ours: Traces, because section: String?) -> String? {
    let blame = [
        cf.did != cf.wasToDo ? "CFRunLoop does not do what we say it does" : nil,
        ours.did != ours.wasToDo ? "ours is wrong" : nil,
    ].compactMap(\.self)
    guard !blame.isEmpty else { return nil }
    return """
        \(blame.joined(separator: "; "))\(section.map { " (differs on purpose: \($0))" } ?? "")
            CFRunLoop did      \(cf.did)
            and was to do      \(cf.wasToDo)
            RunLoop did        \(ours.did)
            and was to do      \(ours.wasToDo)
        """
}

/// Whatever CFRunLoop does, we do too.
func same(_ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ scenario: @escaping Scenario) throws {
    let verdict = try complaintOfSlowest {
        let cf = try play(scenario, stretch: $0) { CFEngine() }
        let ours = try play(scenario, stretch: $0) { OurEngine() }
        return cf == ours ? nil : difference(cf, ours)
    }
    if let verdict { Issue.record(Comment(rawValue: "\(what): \(verdict)"), sourceLocation: sourceLocation) }
}

private func difference(_ cf: String, _ ours: String) -> String {
    let agreed = zip(cf.split(separator: " "), ours.split(separator: " ")).prefix { $0 == $1 }.map(\.0).joined(separator: " ")
    return """
        after \(agreed)
            CFRunLoop did      \(cf.dropFirst(agreed.count))
            RunLoop did        \(ours.dropFirst(agreed.count))
        """
}

private func play(_ scenario: @escaping Scenario, stretch: Double, on engine: @escaping @Sendable () -> any Engine) throws -> String {
    let (stage, trace) = try plainThread {
        let stage = Stage(engine(), stretch: stretch)
        scenario(stage)
        stage.joinThreads()
        return (stage, stage.trace)
    }.join()
    stage.forgetItems()
    return trace
}
