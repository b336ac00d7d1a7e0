// Many loops, each on a thread of its own.

import CPerfPeers
import Dispatch
import EventLoop

enum GrowthLoops {
    static func make(_ size: Int) -> GrowthRig {
        let answered = DispatchSemaphore(value: 0)
        let threads = (0..<size).map { _ in start() }
        var random: UInt64 = 1
        return GrowthRig { cost, ops in
            timed {
                for _ in 0..<ops {
                    if cost == PERF_GROWTH_WAKE {
                        threads[Int(perf_random(&random) % UInt64(size))].runLoop.perform { answered.signal() }
                        answered.wait()
                    } else {
                        end(start())
                    }
                }
            }
        } end: {
            for thread in threads { end(thread) }
        }
    }

    private static func start() -> RunLoopThread { try! RunLoopThread(name: "perf") }  // fails only if the system has no more threads

    private static func end(_ thread: RunLoopThread) {
        thread.stop()
        thread.join()
    }
}
