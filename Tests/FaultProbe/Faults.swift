// Every fault of every scenario.

import CFaults
import EventLoop

#if canImport(Glibc)
import Glibc
#endif

/// The calls that fail in one case.
private struct Fault {
    var function: Int32
    var first: UInt32
    var length: UInt32
    var code: Int32

    var name: String {
        let calls = length == 1 ? "\(first)" : (length == .max ? "\(first)…" : "\(first)…\(first + length - 1)")
        return "\(String(cString: faults_function_name(function))) \(calls) \(errorName(code))"
    }

    /// Other threads took the free descriptors while libevent created a base, so libevent's epoll set is lost (`event_bases.c`). Or the kernel
    /// refuses to watch or to remove a descriptor as if it were closed: a stream does not close a number that may be another file's.
    var mayLoseDescriptor: Bool { faults_is_group(function) && length > 1 || isOfSet }

    private var isOfSet: Bool { String(cString: faults_function_name(function)) == "epoll_ctl" }

    /// If the kernel refused to remove a descriptor that it has, the set would stay ready forever. No kernel does this.
    var mustNotSpin: Bool { isOrdinary || !isOfSet }

    /// The process or the system lacks a resource, or a signal interrupted the call. None of these is a reason to stop.
    var isOrdinary: Bool { [EMFILE, ENFILE, ENOMEM, ENOSPC, ENOBUFS, EAGAIN, EINTR, EDQUOT].contains(code) }
}

private struct Tally {
    var cases = 0
    var worked = 0
    var threw = 0
    var stops: [String: Int] = [:]
    var failures = 0
    /// The position in the rotation of each function's errors, in the sample.
    var turns: [Int32: Int] = [:]

    /// Prints at once, so that interrupting the program does not lose the message.
    mutating func fail(_ text: String) {
        failures += 1
        say("FAILED \(text)")
    }
}

func tryFaults(_ options: Options) -> Bool {
    var tally = Tally()
    for scenario in options.scenarios {
        for isWarm in [true, false] { tryFaults(scenario, isWarm, options, &tally) }
        say("\(scenario.name): \(tally.cases) cases so far, \(tally.failures) failures")
    }
    for (sentence, count) in tally.stops.sorted(by: { $0.key < $1.key }) { say("\(count) × \(sentence)") }
    let stops = tally.stops.values.reduce(0, +)
    say(
        "\(tally.cases) cases: \(tally.worked) worked, \(tally.threw) threw, \(stops) stopped with a sentence, \(tally.failures) failed"
    )
    return tally.failures == 0
}

private func tryFaults(_ scenario: Scenario, _ isWarm: Bool, _ options: Options, _ tally: inout Tally) {
    let clean = run(scenario, isWarm, nil)
    let calls = faults_report()!.pointee.calls_at_all
    guard clean.isGood, clean.ending == .worked else {
        tally.fail("\(scenario.name) without a fault: \(clean.text)")
        return
    }
    for function in 0..<Int32(faults_function_count()) {
        if let name = options.function, name != String(cString: faults_function_name(function)) { continue }
        let all = errors(of: function)
        for length in faults_is_group(function) ? (options.isSample ? [3, UInt32.max] : [1, 2, 3, UInt32.max]) : [1] {
            for series in all.indices.prefix(options.isSample ? 2 : .max) {
                var first: UInt32 = 1
                while first < 2_000 {  // ends: when the scenario has no such call
                    let code = options.isSample && series > 0 ? tally.nextError(of: function, all, options) : all[series]
                    let fault = Fault(function: function, first: first, length: length, code: code)
                    if !tryFault(scenario, isWarm, fault, cleanCalls: calls, options, &tally) { break }
                    // The sample: calls 1, 2, 4, 8, … with the first error; calls 1, 4, 16, … with the errors in rotation.
                    first += options.isSample ? (series == 0 ? first : 3 * first) : 1
                }
            }
        }
    }
}

private func errors(of function: Int32) -> [Int32] {
    let all = faults_errnos(function)!
    var errors: [Int32] = []
    while all[errors.count] != 0 { errors.append(all[errors.count]) }
    return errors
}

extension Tally {
    /// The sample tries the first and likeliest error at each of its calls, and rotates through the others.
    fileprivate mutating func nextError(of function: Int32, _ all: [Int32], _ options: Options) -> Int32 {
        let turn = turns[function, default: options.turn]
        turns[function] = turn + 1
        return all[1 + turn % (all.count - 1)]
    }
}

/// Returns false if there was no such call.
private func tryFault(
    _ scenario: Scenario, _ isWarm: Bool, _ fault: Fault, cleanCalls: UInt32, _ options: Options, _ tally: inout Tally
) -> Bool {
    var verdict = run(scenario, isWarm, fault)
    let report = faults_report()!.pointee
    if report.failed == 0 && verdict.isGood { return false }
    if verdict.isGood && verdict.ending != .nothing && fault.mustNotSpin
        && report.calls_after > 4 * cleanCalls + 1_000 + 10 * report.milliseconds
    {
        verdict.isGood = false
        verdict.text =
            "spun: \(report.calls_after) calls after the fault in \(report.milliseconds) ms, \(cleanCalls) without one; \(mostCalled(report))"
    }
    let isAllowed = !verdict.text.hasPrefix("stopped") || !fault.isOrdinary || scenario.mayStop(verdict.text)
    let name = "\(scenario.name)\(isWarm ? "" : " (first use)"), \(fault.name)"
    if options.isVerbose { say("\(name): \(verdict.isGood ? "" : "BAD ")\(verdict.ending) \(verdict.text)") }
    tally.cases += 1
    if !verdict.isGood || !isAllowed {
        tally.fail("\(name): \(verdict.text)")
    } else {
        switch verdict.ending {
        case .worked: tally.worked += 1
        case .threw: tally.threw += 1
        case .nothing, .wrong: tally.stops[verdict.text, default: 0] += 1
        }
    }
    return report.failed > 0
}

/// Runs the scenario once with the fault and once without it; afterwards the process must be undamaged. `isWarm`: a run without a fault
/// comes first and creates everything that the first use creates, so an additional descriptor at the end is a leak.
private func run(_ scenario: Scenario, _ isWarm: Bool, _ fault: Fault?) -> Verdict {
    Case.run(mayStop: true) {
        var thrown: (any Error)?
        try scenario.inItsWorld { world in
            if isWarm { try scenario.body(world) }
            let before = openDescriptors()
            faults_arm(fault?.function ?? -1, fault?.first ?? 0, fault?.length ?? 0, fault?.code ?? 0)
            let start = RunLoop.Instant.now
            do { try scenario.body(world) } catch { thrown = error }
            faults_disarm()
            faults_report()!.pointee.milliseconds = UInt32(start.duration(to: .now) / .milliseconds(1))
            if let wrong = thrown as? Wrong { throw wrong }
            do { try scenario.body(world) } catch { throw Wrong(text: "the run after the fault: \(error)") }
            if isWarm { try requireNoMoreThan(before, plus: fault?.mayLoseDescriptor ?? false ? 1 : 0) }
        }
        if let thrown { throw thrown }
    }
}

/// The most frequently called functions.
private func mostCalled(_ report: faults_report) -> String {
    let calls = withUnsafeBytes(of: report.calls) { Array($0.bindMemory(to: UInt32.self)) }
    let most = (0..<Int(faults_function_count())).sorted { calls[$0] > calls[$1] }.prefix(3)
    return most.map { "\(String(cString: faults_function_name(Int32($0)))) \(calls[$0])" }.joined(separator: ", ")
}

private func errorName(_ code: Int32) -> String {
    strerrorname(code).map { String(cString: $0) } ?? "errno \(code)"
}

@_silgen_name("strerrorname_np") private func strerrorname(_ code: Int32) -> UnsafePointer<CChar>?
