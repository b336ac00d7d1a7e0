// Rule proved here: EventLoopCF notices that the calling thread runs Core Foundation's own loop, and makes no such loop to find out.

internal import EventLoop
internal import EventLoopTestSupport
internal import Testing

@testable import EventLoopCF

#if os(Linux)

@Suite(.bounded) struct OtherLoopTests {
    @Test func `a run of Core Foundation's loop is noticed on its thread, while it lasts`() throws {
        let seen = Box<[Bool]>([])
        try plainThread {
            seen.value.append(coreFoundationRunsHere)
            let engine = CFEngine()
            seen.value.append(coreFoundationRunsHere)
            engine.makeTimer("t", fireAtMilliseconds: 0, intervalMilliseconds: nil, order: 0) {
                seen.value.append(coreFoundationRunsHere)
                try! plainThread { seen.value.append(coreFoundationRunsHere) }.join()  // the body throws nothing
            }
            engine.add("t", to: "default")
            _ = engine.run(in: "default", limitSeconds: 60, returnAfterSource: false)
            engine.forgetItems()
            seen.value.append(coreFoundationRunsHere)
        }.join()
        #expect(seen.value == [false, false, true, false, false])
    }

    @Test func `a run of the package's loop is not taken for one`() throws {
        let seen = Box<Bool?>(nil)
        try onFreshThread { loop in
            loop.performBlock { seen.value = coreFoundationRunsHere }
            _ = loop.run()
        }
        #expect(seen.value == false)
    }

    #if DEBUG
    @Test func `a stop of the loop that does not run is reported once`() async {
        await #expect(processExitsWith: .success) {
            let warnings = Box<[RunLoop.Warning]>([])
            RunLoop.setWarningHandler { warning in warnings.change { $0.append(warning) } }
            try plainThread {
                let (cf, ours) = (CFEngine(), NamesEngine())
                // No run is in progress.
                ours.stop()
                cf.makeTimer("t", fireAtMilliseconds: 0, intervalMilliseconds: nil, order: 0) {
                    ours.stop()
                    ours.stop()
                    // Another thread may stop the loop before it runs.
                    try! plainThread { ours.stop() }.join()  // the body throws nothing
                    ours.performBlock(in: ["default"]) { ours.stop() }
                    _ = ours.run(in: "default", limitSeconds: 60, returnAfterSource: false)
                }
                cf.add("t", to: "default")
                _ = cf.run(in: "default", limitSeconds: 60, returnAfterSource: false)
                cf.forgetItems()
            }.join()
            #expect(warnings.value.map(\.kind) == [.otherLoopRuns])
        }
    }
    #endif
}

#endif
