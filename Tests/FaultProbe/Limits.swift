// Every scenario with few descriptors.

import CFaults
import EventLoop

#if canImport(Glibc)
import Glibc
#endif

/// Runs each scenario with every limit. It must work, throw, or, if it cannot throw, stop with a sentence.
func tryLimits(_ options: Options) -> Bool {
    var failures = 0
    for scenario in options.scenarios {
        var (worked, threw, stopped): ([Int], [Int], [Int]) = ([], [], [])
        for limit in 4...64 {
            let verdict = Case.run(mayStop: true) {
                try scenario.inItsWorld {
                    limitDescriptors(limit)
                    try scenario.body($0)
                }
            }
            let isStop = verdict.text.hasPrefix("stopped")
            if isStop { stopped.append(limit) } else if verdict.ending == .worked { worked.append(limit) } else { threw.append(limit) }
            if options.isVerbose { say("\(scenario.name), \(limit) descriptors: \(verdict.ending) \(verdict.text)") }
            if !verdict.isGood || (isStop && !scenario.mayStop(verdict.text)) {
                failures += 1
                say("FAILED \(scenario.name), \(limit) descriptors: \(verdict.text)")
            }
        }
        say("\(scenario.name): works \(ranges(worked)), throws \(ranges(threw)), stops \(ranges(stopped))")
        if worked.last != 64 {
            failures += 1
            say("FAILED \(scenario.name): 64 descriptors are not enough")
        }
    }
    return failures == 0
}

private func ranges(_ numbers: [Int]) -> String {
    var ranges: [ClosedRange<Int>] = []
    for number in numbers {
        if let last = ranges.last, last.upperBound + 1 == number {
            ranges[ranges.count - 1] = last.lowerBound...number
        } else {
            ranges.append(number...number)
        }
    }
    return ranges.isEmpty ? "never" : ranges.map { "\($0.lowerBound)…\($0.upperBound)" }.joined(separator: ", ")
}
