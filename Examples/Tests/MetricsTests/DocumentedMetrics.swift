// The code of docs/services.md about metrics, compiled and run.

import EventLoop
import EventLoopMetrics
import TestSupport
import Testing

@Suite struct DocumentedMetrics {
    @Test func `the loops of a group report while they work`() throws {
        let group = try RunLoopThreadGroup(count: 2, name: "server")

        let metrics = RunLoopMetrics(group, name: "server")
        metrics.reportWhileWorking(every: .seconds(10))

        metrics.report()
        group.shutdown()
    }
}
