// Rules proved here (RunLoopService.swift):
// - The service manager hears that the service is up when every `setup` has returned, and that it stops before the threads drain.
// - Meanwhile it has signs of life.
// - If it cannot hear that, the service ends with the error.

import EventLoop
import EventLoopServiceLifecycle
import EventLoopSupervisor
import ServiceLifecycleTestKit
import TestSupport
import Testing

@Suite(.bounded) struct SupervisedServiceTests {
    @Test func `the service manager hears of the start, the life and the end of the service`() async throws {
        let manager = try ServiceManager()
        // The queue of the socket has room for ten notifications. Two signs of life in a second do not fill it, however slow the machine is: a
        // notification for which there is no room for a second is lost.
        let supervisor = try RunLoop.Supervisor(environment: ["NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "1000000"])
        let heardInSetup = Box<[String]>([])
        // Whoever receives adds it here at once, so that nothing is between two readers.
        let heard = Box<[String]>([])
        let heardBeforeDraining = Box(false)
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    let service = RunLoopService(
                        count: 2, supervisor: supervisor,
                        setup: { _ in heardInSetup.change { $0 += manager.received() } },
                        drain: { _, _ in
                            heardBeforeDraining.value = heard.change { heard in
                                heard += manager.received()
                                return heard.contains("STOPPING=1")
                            }
                        },
                        teardown: { _, _ in })
                    try await service.run()
                }
                try await manager.hear("READY=1")
                #expect(heardInSetup.value.isEmpty)
                try await manager.hear("WATCHDOG=1")
                trigger.triggerGracefulShutdown()
                try await suspendUntil("the end") {
                    heard.change { heard in
                        heard += manager.received()
                        return heard.contains("STOPPING=1")
                    }
                }
                try await group.waitForAll()
            }
        }
        #expect(heardBeforeDraining.value)
    }

    @Test func `a service that cannot say that it is up ends with the error`() async throws {
        let supervisor = try RunLoop.Supervisor(environment: ["NOTIFY_SOCKET": "/nowhere/notify"])
        let isTornDown = Box(0)
        let service = RunLoopService(supervisor: supervisor, teardown: { _ in isTornDown.increment() })
        await #expect(throws: RunLoop.SupervisorError.self) { try await service.run() }
        #expect(isTornDown.value == 1)
    }
}
