// Rule proved here: the tables of docs/foundation.md have every member of Foundation's RunLoop and Timer, and every function of CFRunLoop.

import Foundation
import Testing

@Suite struct FoundationPageTests {
    /// The public members of both classes in the toolchain's Foundation for Linux, and the additional members of Apple's classes.
    @Test(arguments: [
        "current", "main", "currentMode", "getCFRunLoop()", "add(_:forMode:)", "remove(_:forMode:)", "limitDate(forMode:)",
        "acceptInput(forMode:before:)", "run()", "run(until:)", "run(mode:before:)", "perform(inModes:block:)", "perform(_:)",
        "perform(_:target:argument:order:modes:)", "cancelPerform(_:target:argument:)", "cancelPerformSelectors(withTarget:)",
        "RunLoop.Mode(_:)", "Mode(rawValue:)", "Mode.default", "Mode.common", "_stop()", "init(fire:interval:repeats:block:)",
        "init(timeInterval:repeats:block:)", "scheduledTimer(withTimeInterval:repeats:block:)", "fire()", "fireDate", "timeInterval",
        "tolerance", "invalidate()", "isValid", "userInfo", "Timer.publish(every:on:in:)", "Scheduler",
    ])
    func `the table has a row for every member`(member: String) throws {
        let rows = try rows()
        #expect(rows.contains { $0.contains("`\(member)`") })
    }

    /// The exported functions of the toolchain's CFRunLoop.h, each without its prefix.
    private static let functions = [
        "": [
            "GetTypeID", "GetCurrent", "GetMain", "CopyCurrentMode", "CopyAllModes", "AddCommonMode", "GetNextTimerFireDate", "Run",
            "RunInMode", "IsWaiting", "WakeUp", "Stop", "PerformBlock", "ContainsSource", "AddSource", "RemoveSource", "ContainsObserver",
            "AddObserver", "RemoveObserver", "ContainsTimer", "AddTimer", "RemoveTimer",
        ],
        "Source": ["GetTypeID", "Create", "GetOrder", "Invalidate", "IsValid", "GetContext", "Signal"],
        "Observer": [
            "GetTypeID", "Create", "CreateWithHandler", "GetActivities", "DoesRepeat", "GetOrder", "Invalidate", "IsValid", "GetContext",
        ],
        "Timer": [
            "GetTypeID", "Create", "CreateWithHandler", "GetNextFireDate", "SetNextFireDate", "GetInterval", "DoesRepeat", "GetOrder",
            "Invalidate", "IsValid", "GetContext", "GetTolerance", "SetTolerance",
        ],
    ]

    @Test func `the table has a row for every function of CFRunLoop`() throws {
        let rows = try rows()
        for (type, names) in Self.functions {
            for name in names { #expect(rows.contains { $0.contains("`CFRunLoop\(type)\(name)`") }, "CFRunLoop\(type)\(name)") }
        }
    }

    /// The first cells of the page's rows.
    private func rows() throws -> [Substring] {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../docs/foundation.md")
        let lines = try String(contentsOf: page.standardizedFileURL, encoding: .utf8).split(separator: "\n")
        return lines.filter { $0.hasPrefix("| `") }.map { $0.split(separator: "|")[0] }
    }
}
