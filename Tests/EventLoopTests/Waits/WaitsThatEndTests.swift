// No event prevents a wait from ending (semantics 4 and 12; decision 6): stops, limits, wake-ups, urgent sources and timers take effect
// within a bounded number of libevent's rounds, whatever is ready and at whatever priority, with epoll, poll and select.
//
// Each backend has a process of its own: libevent reads EVENT_NOEPOLL and EVENT_NOPOLL when it makes a base, and only another process can
// end a wait that does not end and that calls no handler.

import CLibevent
import EventLoop
import EventLoopObserving
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs all combinations, and records the failures.
func runWaitMatrix(without disabled: [String], backend: String) throws {
    for method in disabled { setenv("EVENT_NO\(method.uppercased())", "1", 1) }
    let used = try onFreshThread { loop in loop.withEventBase { String(cString: event_base_get_method($0)) } }
    #expect(used == backend)
    let watchdog = CaseWatchdog()
    defer { watchdog.end() }
    let cases = WaitCase.all(short: getenv("EVENTLOOP_ALL_WAITS") == nil)
    var complaints = 0
    for test in cases {
        watchdog.begin(test.description)
        guard let complaint = try WaitRun.complaint(test) else { continue }
        complaints += 1
        if complaints <= 20 { Issue.record("\(backend): \(complaint)") }
    }
    #expect(complaints == 0, "\(complaints) of \(cases.count) waits with \(backend) did not end as they should")
}

@Suite struct WaitsThatEndTests {
    #if os(Linux)
    @Test func `with epoll every wait ends, whatever is ready`() async {
        await #expect(processExitsWith: .success) { try runWaitMatrix(without: [], backend: "epoll") }
    }

    @Test func `with poll every wait ends, whatever is ready`() async {
        await #expect(processExitsWith: .success) { try runWaitMatrix(without: ["epoll"], backend: "poll") }
    }

    @Test func `with select every wait ends, whatever is ready`() async {
        await #expect(processExitsWith: .success) { try runWaitMatrix(without: ["epoll", "poll"], backend: "select") }
    }
    #endif
}
