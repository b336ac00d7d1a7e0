// The groups of Hummingbird's tests, each event loop with a run loop on its thread. Scripts/test-hummingbird adds this module to Hummingbird.

import Dispatch
import EventLoop
import EventLoopNIO
import NIOCore
public import NIOPosix
import Synchronization

public enum HostedGroups {
    /// NIO's own singleton.
    public static let singleton = host(MultiThreadedEventLoopGroup.singleton)

    public static func make(_ threads: Int) -> MultiThreadedEventLoopGroup { host(MultiThreadedEventLoopGroup(numberOfThreads: threads)) }

    private static let (hosts, ticks) = (Counts(), Counts())

    /// The tests block while a group gets its hosts, so the task that starts them does not run in Swift's pool.
    private static let starter: RunLoopThread = {
        atexit { HostedGroups.report() }
        do { return try RunLoopThread(name: "starter") } catch { fatalError("\(error)") }
    }()

    private static func host(_ group: MultiThreadedEventLoopGroup) -> MultiThreadedEventLoopGroup {
        let isDone = DispatchSemaphore(value: 0)
        Task(executorPreference: starter.runLoop) {
            do {
                for host in try await NIOHost.start(onAllOf: group) {
                    hosts.value.add(1, ordering: .relaxed)
                    // The run loop is busy, too.
                    host.runLoop.perform {
                        RunLoop.current.add(RunLoop.Timer(every: .milliseconds(2)) { _ in ticks.value.add(1, ordering: .relaxed) })
                    }
                }
            } catch {
                fatalError("\(error)")
            }
            isDone.signal()
        }
        isDone.wait()
        return group
    }

    private static func report() {
        print("hosted event loops: \(hosts.value.load(ordering: .relaxed)), timers fired on them: \(ticks.value.load(ordering: .relaxed))")
    }
}

private final class Counts: Sendable {
    let value = Atomic<Int>(0)
}
