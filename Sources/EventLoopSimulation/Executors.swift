// The executors of a simulated program. They are objects of the process; which simulation a job belongs to is the calling thread's.

internal import CSimulation

#if os(Linux) && compiler(>=6.3)
@_spi(ExperimentalCustomExecutors) @_spi(ExperimentalScheduling) internal import _Concurrency

/// A task passes through it at each hop, so that another job may come first.
final class HopExecutor: SerialExecutor {
    static let shared = HopExecutor()

    func enqueue(_ job: consuming ExecutorJob) { csim_enqueue_hop(UnownedJob(job).pointer) }
}

/// The main actor of a simulated program.
final class SimulatedMainExecutor: SerialExecutor {
    static let shared = SimulatedMainExecutor()

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job).pointer
        let kind = Int32(CSIM_MAIN.rawValue)
        if let run = csim_current() {
            csim_enqueue_job(run, job, kind)
        } else {
            // Another thread has resumed the task. If its run is over, it never runs on.
            _ = csim_take_from_other_thread(job, kind)
        }
    }
}

/// Where a task goes that never runs on: its job is dropped.
final class NowhereExecutor: SerialExecutor {
    static let shared = NowhereExecutor()

    func enqueue(_ job: consuming ExecutorJob) {}
}

/// The default executor of the process: the simulation of the calling thread, or the platform's own on every other thread.
final class DefaultExecutor: TaskExecutor, SchedulingExecutor {
    static let shared = DefaultExecutor()

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        if let run = csim_current() {
            csim_enqueue_job(run, job.pointer, Int32(CSIM_POOL.rawValue))
        } else {
            // Through the hook, which returns the tasks of simulations to them.
            PlatformExecutorFactory.defaultExecutor.enqueue(job)
        }
    }

    func enqueue<C: Clock>(_ job: consuming ExecutorJob, at instant: C.Instant, tolerance: C.Duration?, clock: C) {
        if let run = csim_current() {
            let left = clock.now.duration(to: instant)
            csim_add_timer(run, UnownedJob(job).pointer, csim_now(run).adding(left))
        } else {
            platform.enqueue(job, at: instant, tolerance: tolerance, clock: clock)
        }
    }

    func enqueue<C: Clock>(_ job: consuming ExecutorJob, after delay: C.Duration, tolerance: C.Duration?, clock: C) {
        if let run = csim_current() {
            csim_add_timer(run, UnownedJob(job).pointer, csim_now(run).adding(delay))
        } else {
            platform.enqueue(job, after: delay, tolerance: tolerance, clock: clock)
        }
    }

    private var platform: any SchedulingExecutor {
        guard let executor = PlatformExecutorFactory.defaultExecutor as? any SchedulingExecutor else {
            preconditionFailure("the platform's default executor has no clock")
        }
        return executor
    }
}

private struct SimulationExecutorFactory: ExecutorFactory {
    static var mainExecutor: any MainExecutor { PlatformExecutorFactory.mainExecutor }
    static var defaultExecutor: any TaskExecutor { DefaultExecutor.shared }
}

/// Called once, before `main`, while the process has one thread: the runtime's variable is not atomic.
@_cdecl("csim_install_executors")
func installExecutors() { _createExecutors(factory: SimulationExecutorFactory.self) }

let runtimeAllowsSimulation = true

func executorsOfSimulation() -> (hop: csim_executor, main: csim_executor, nowhere: csim_executor) {
    (
        unsafeBitCast(HopExecutor.shared.asUnownedSerialExecutor(), to: csim_executor.self),
        unsafeBitCast(SimulatedMainExecutor.shared.asUnownedSerialExecutor(), to: csim_executor.self),
        unsafeBitCast(NowhereExecutor.shared.asUnownedSerialExecutor(), to: csim_executor.self)
    )
}
#else
let runtimeAllowsSimulation = false
func executorsOfSimulation() -> (hop: csim_executor, main: csim_executor, nowhere: csim_executor) {
    (csim_executor(), csim_executor(), csim_executor())
}
#endif

extension UnownedJob {
    fileprivate var pointer: UnsafeMutableRawPointer { unsafeBitCast(self, to: UnsafeMutableRawPointer.self) }
}

extension UInt64 {
    /// This time moved by a duration that is not negative; anything but a `Duration` counts as zero. Saturates.
    fileprivate func adding<D: DurationProtocol>(_ duration: D) -> UInt64 {
        guard let duration = duration as? Duration else { return self }
        return adding(nanoseconds: duration.wholeNanoseconds)
    }

    func adding(nanoseconds: UInt64) -> UInt64 {
        let (sum, overflow) = addingReportingOverflow(nanoseconds)
        // `UInt64.max` means that there is no time.
        return overflow ? .max - 1 : Swift.min(sum, .max - 1)
    }
}

extension Duration {
    /// Rounded up; zero if it is negative. Saturates.
    var wholeNanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        if seconds < 0 || attoseconds < 0 { return 0 }
        let (whole, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        if overflow { return .max }
        let rest = UInt64(attoseconds)
        return whole.adding(nanoseconds: rest / 1_000_000_000 + (rest % 1_000_000_000 == 0 ? 0 : 1))
    }
}
