// Rule proved here: the table of docs/foundation.md has every member of Foundation's RunLoop and Timer.

import Foundation
import Testing

@Suite struct FoundationPageTests {
    /// The public members of both classes in the toolchain's Foundation for Linux, and the additional members of Apple's classes.
    @Test(arguments: [
        "current", "main", "currentMode", "getCFRunLoop()", "add(_:forMode:)", "remove(_:forMode:)", "limitDate(forMode:)",
        "acceptInput(forMode:before:)", "run()", "run(until:)", "run(mode:before:)", "perform(inModes:block:)", "perform(_:)",
        "perform(_:target:argument:order:modes:)", "cancelPerform(_:target:argument:)", "cancelPerformSelectors(withTarget:)",
        "RunLoop.Mode(_:)", "Mode(rawValue:)", "Mode.default", "Mode.common", "init(fire:interval:repeats:block:)",
        "init(timeInterval:repeats:block:)", "scheduledTimer(withTimeInterval:repeats:block:)", "fire()", "fireDate", "timeInterval",
        "tolerance", "invalidate()", "isValid", "userInfo", "Timer.publish(every:on:in:)", "Scheduler",
    ])
    func `the table has a row for every member`(member: String) throws {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../docs/foundation.md")
        let rows = try String(contentsOf: page.standardizedFileURL, encoding: .utf8).split(separator: "\n").filter { $0.hasPrefix("| `") }
        #expect(rows.contains { $0.split(separator: "|")[0].contains("`\(member)`") })
    }
}
