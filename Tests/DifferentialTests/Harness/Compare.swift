// Plays a scenario on both run loops, and a second time on ours through the functions of EventLoopCF, each time on a thread of its own, and
// compares the traces.

internal import EventLoopTestSupport
internal import Testing

typealias Scenario = @Sendable (Stage) -> Void

/// The rule holds for CFRunLoop and for us: both leave the trace `expected`.
func both(_ expected: String, sourceLocation: SourceLocation = #_sourceLocation, _ scenario: @escaping Scenario) throws {
    try compare(cf: expected, ours: expected, because: nil, sourceLocation, scenario)
}

/// We differ on purpose, for the reason in the given section of semantics.md. `names` is the trace that EventLoopCF leaves if it is another
/// than ours.
func differ(
    cf: String, ours: String, names: String? = nil, because section: String, sourceLocation: SourceLocation = #_sourceLocation,
    _ scenario: @escaping Scenario
) throws {
    try compare(cf: cf, ours: ours, names: names, because: section, sourceLocation, scenario)
}

private func compare(
    cf expectedOfCF: String, ours expectedOfUs: String, names expectedOfNames: String? = nil, because section: String?,
    _ sourceLocation: SourceLocation, _ scenario: @escaping Scenario
) throws {
    let verdict = try complaintOfSlowest {
        let cf = try play(scenario, stretch: $0) { CFEngine() }
        let ours = try play(scenario, stretch: $0) { OurEngine() }
        let names = try play(scenario, stretch: $0) { NamesEngine() }
        return complaint(
            cf: (cf, expectedOfCF), ours: (ours, expectedOfUs), names: (names, expectedOfNames ?? expectedOfUs), because: section)
    }
    if let verdict { Issue.record(Comment(rawValue: verdict), sourceLocation: sourceLocation) }
}

/// The complaint about the slowest attempt, or nil as soon as one attempt causes no complaint.
///
/// Scenarios run in real time, because CFRunLoop has no other time. On a busy machine a limit of 5 ms can pass between two steps, and then
/// both loops rightly behave differently. So a scenario that causes a complaint is played again with its time stretched.
func complaintOfSlowest(_ play: (_ stretch: Double) throws -> String?) rethrows -> String? {
    var complaint: String?
    for stretch in [1, 20, 400] as [Double] {
        complaint = try play(stretch)
        if complaint == nil { return nil }
    }
    return complaint
}

typealias Traces = (did: String, wasToDo: String)

/// Describes the difference, with all six traces; nil if there is none.
func complaint(cf: Traces, ours: Traces, names: Traces, because section: String?) -> String? {
    let blame = [
        cf.did != cf.wasToDo ? "CFRunLoop does not do what we say it does" : nil,
        ours.did != ours.wasToDo ? "ours is wrong" : nil,
        names.did != names.wasToDo ? "EventLoopCF is wrong" : nil,
    ].compactMap(\.self)
    guard !blame.isEmpty else { return nil }
    return """
        \(blame.joined(separator: "; "))\(section.map { " (differs on purpose: \($0))" } ?? "")
            CFRunLoop did      \(cf.did)
            and was to do      \(cf.wasToDo)
            RunLoop did        \(ours.did)
            and was to do      \(ours.wasToDo)
            EventLoopCF did    \(names.did)
            and was to do      \(names.wasToDo)
        """
}

/// We do whatever CFRunLoop does.
func same(_ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ scenario: @escaping Scenario) throws {
    let verdict = try complaintOfSlowest {
        let cf = try play(scenario, stretch: $0) { CFEngine() }
        let ours = try play(scenario, stretch: $0) { OurEngine() }
        if cf != ours { return difference(cf, ours, by: "RunLoop") }
        let names = try play(scenario, stretch: $0) { NamesEngine() }
        return cf == names ? nil : difference(cf, names, by: "EventLoopCF")
    }
    if let verdict { Issue.record(Comment(rawValue: "\(what): \(verdict)"), sourceLocation: sourceLocation) }
}

private func difference(_ cf: String, _ ours: String, by subject: String) -> String {
    let agreed = zip(cf.split(separator: " "), ours.split(separator: " ")).prefix { $0 == $1 }.map(\.0).joined(separator: " ")
    return """
        after \(agreed)
            CFRunLoop did      \(cf.dropFirst(agreed.count))
            \(subject) did \(ours.dropFirst(agreed.count))
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
