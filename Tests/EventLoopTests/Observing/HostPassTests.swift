// Rules proved here (semantics 19.17), with a host that reports its passes as EventLoopNIO does:
// - A recording has one span for each pass, labelled, at depth 0, and the runs of the steps are inside.
// - The watchdog reports a pass that takes too long, once, while it lasts; a callout inside a step is reported as itself.
// - A loop that nobody observes has no span; an observation may begin and end inside a pass.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

#if os(Linux)
@Suite(.bounded, .tags(.memory)) struct HostPassTests {
    @Test func `a recording has a span for each pass, around the steps`() throws {
        try onFreshThread { loop in
            loop.addIdleSource()
            let host = try PlainHost(loop)
            loop.startRecording()
            // The owner learns of the recording in a step.
            host.step()
            for _ in 1...3 {
                host.hosted.hostBeginsPass(label: "host")
                loop.perform {}
                host.step()
                host.step()
                host.hosted.hostEndsPass()
            }
            // Steps without a pass.
            host.step()
            let events = try #require(loop.stopRecording()).events
            let passes = events.filter { $0.kind == .hostedLibrary }
            #expect(passes.count == 3)
            #expect(passes.allSatisfy { $0.label == "host" && $0.depth == 0 && $0.mode == .default && $0.createdAt == nil })
            let runs = events.filter { $0.kind == .run }
            #expect(runs.count == 8)
            for pass in passes {
                let end = pass.start.advanced(by: pass.duration)
                #expect(runs.count { $0.start >= pass.start && $0.start.advanced(by: $0.duration) <= end } == 2)
            }
        }
    }

    @Test func `a pass that takes too long is reported once, while it lasts, and a perform in it as itself`() throws {
        let stalls = Box<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in stalls.change { $0.append(stall) } }
        try onFreshThread { loop in
            loop.addIdleSource()
            let host = try PlainHost(loop)
            watchdog.watch(loop)
            host.step()
            let first = stalls.value.count
            host.hosted.hostBeginsPass(label: "host")
            try waitUntil("the pass is reported") { stalls.value.dropFirst(first).contains { $0.label == "host" } }
            loop.perform {
                do { try waitUntil("the perform is reported") { stalls.value.contains { $0.kind == .perform } } } catch {
                    Issue.record(error)
                }
            }
            host.step()
            host.hosted.hostEndsPass()
            #expect(stalls.value.count { $0.kind == .perform } == 1)
            #expect(stalls.value.first { $0.label == "host" }?.kind == .hostedLibrary)
            // Between two passes the thread counts as asleep.
            if case .asleep = loop.calloutState() {} else { Issue.record("it works") }
        }
        watchdog.invalidate()
    }

    @Test func `an observation may begin and end inside a pass`() throws {
        try onFreshThread { loop in
            loop.addIdleSource()
            let host = try PlainHost(loop)
            #expect(!host.hosted.isObserved)
            host.hosted.hostBeginsPass(label: "unseen")
            host.hosted.hostEndsPass()
            let watchdog = RunLoop.Watchdog(threshold: .seconds(3_600)) { _ in }
            for _ in 1...3 {
                host.hosted.hostBeginsPass(label: "first")
                watchdog.watch(loop)
                host.step()
                #expect(host.hosted.isObserved)
                if case .asleep = loop.calloutState() {} else { Issue.record("the pass began before the observation") }
                host.hosted.hostEndsPass()
                host.hosted.hostBeginsPass(label: "second")
                if case .inCallout(let item, _, _) = loop.calloutState() {
                    #expect(item.label == "second" && item.kind == .hostedLibrary)
                } else {
                    Issue.record("a pass is a callout")
                }
                host.step()
                if case .inCallout = loop.calloutState() {} else { Issue.record("the pass goes on after the step") }
                watchdog.stopWatching(loop)
                host.step()
                #expect(!host.hosted.isObserved)
                host.hosted.hostEndsPass()
                if case .asleep = loop.calloutState() {} else { Issue.record("nobody works") }
            }
            watchdog.invalidate()
        }
    }
}
#endif
