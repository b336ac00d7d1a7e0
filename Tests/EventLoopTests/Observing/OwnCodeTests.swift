// Rules proved here (semantics 23.10):
// - The summary of a stall has at most eight lines of its backtrace, those of the program's own code first.
// - The loop of a RunLoopThread has that thread's name.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

@Suite(.bounded, .tags(.threads)) struct OwnCodeTests {
    @Test(
        arguments: [
            ("$s6server6handleyyF", "server", true), ("$s6server6handleyyFyycfU_", "server", true), ("main", "server", true),
            ("decode_frame", "server", true), ("$s15EventLoopPlugin1fyyF", "server", true), ("$s14EventLoopTests1fyyF", "server", true),
            ("$s9EventLoop03RunB0C3runyyF", "server", false), ("$s16EventLoopStreams10ByteStreamC4readyyF", "server", false),
            ("$ss5print_9separator10terminatoryypd_S2StF", "libswiftCore.so", false), ("$sIeg_IyB_TR", "server", false),
            ("$sSa6appendyyxnF", "server", false), ("event_base_loop", "libevent-2.1.so.7", false), ("evmap_io_active_", "server", false),
            ("nanosleep", "libc.so.6", false), ("swift_release", "server", false), ("cplatform_poll", "server", false),
            ("csim_run_entry", "server", false), ("chost_passes_prepare", "server", false),
            (nil, "server", false),
            ("f", nil, false),
        ] as [(String?, String?, Bool)])
    func `the program's own code is distinguished from that of libraries`(function: String?, image: String?, isOwn: Bool) {
        #expect(OwnCode.contains(function: function, in: image) == isOwn)
    }

    @Test func `a summary has at most eight lines, own code first`() {
        let frames = (0..<12).map { Backtrace.Frame(line: "#\($0)", isOwn: $0 == 3 || $0 == 9) }
        #expect(Backtrace.summary(frames) == ["#3", "#9", "#0", "#1", "#2", "#4", "#5", "#6"])
        #expect(Backtrace.summary((0..<12).map { Backtrace.Frame(line: "#\($0)", isOwn: true) }).count == 8)
        #expect(Backtrace.summary([]) == [])
    }

    @Test func `a stall names its loop, and its summary has the function that takes long`() throws {
        let thread = try RunLoopThread(name: "slow worker")
        let stalls = Box<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { found in
            if found.label == "planted" { stalls.change { $0.append(found) } }
        }
        watchdog.watch(thread.runLoop)
        // On a busy machine the thread may be reported before it is in the function.
        try waitUntil("a stall is reported in the function") {
            let (isOver, count) = (Gate(), stalls.value.count)
            thread.runLoop.add(
                RunLoop.Timer(after: .zero, label: "planted") { _ in
                    takeLong(until: stalls, count)
                    isOver.open()
                })
            isOver.wait()
            guard let backtrace = stalls.value.last?.backtrace else { return false }
            return backtrace.isEmpty || backtrace.contains { $0.contains("takeLong") }
        }
        let report = try #require(stalls.value.last)
        #expect(report.loopName == "slow worker" && report.summary.count <= 8)
        #expect(report.summary.allSatisfy { report.backtrace.contains($0) })
        // A sanitizer's runtime is linked into the program, so its frames count as the program's own, and there may be more than eight.
        if !report.backtrace.isEmpty && !isUnderThreadSanitizer && !isUnderAddressSanitizer {
            #expect(report.summary.contains { $0.contains("takeLong") }, "\(report.summary) of \(report.backtrace)")
            // The name follows the frame's number. The types of the parameters may be the library's.
            let first = report.summary.first?.split(separator: " ").dropFirst().first
            #expect(first?.hasPrefix("EventLoop.") == false, "\(report.summary)")
        }
        thread.stop()
        #expect(thread.join(timeout: patience))
        watchdog.invalidate()
    }
}

@inline(never) private func takeLong(until stalls: Box<[RunLoop.Watchdog.Stall]>, _ count: Int) {
    while stalls.value.count == count {}  // ends: with the report
}
