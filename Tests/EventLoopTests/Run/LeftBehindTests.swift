// Rules proved here:
// - When a loop's thread has ended and nothing retains the loop, none of its descriptors is open.
// - A mode that never runs opens no descriptor, and neither does a run with a limit.
// Each test is a process of its own, so that the descriptors of other tests are not counted.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private func descriptorsInUse() -> [Int32] {
    (0..<4_096).filter { fcntl($0, F_GETFD) >= 0 }
}

/// Traps unless, in one of three tries, the process has the same descriptors after `body` as before. A descriptor that the process opens
/// only once, as Dispatch does when its own threads run, is not the loop's. A descriptor that a loop leaves open appears in every try.
private func leavesNoDescriptor(_ body: () throws -> Void) rethrows {
    var seen: [[Int32]] = [descriptorsInUse()]
    for _ in 1...3 {
        try body()
        let after = descriptorsInUse()
        if after == seen.last { return }
        seen.append(after)
    }
    preconditionFailure("the descriptors after each try: \(seen)")
}

/// Uses a loop in all ways that may open a descriptor.
private func useALoop() throws {
    try onFreshThread { loop in
        loop.addIdleSource(forMode: .common)
        for mode in ["a", "b", "c"] as [RunLoop.Mode] {
            loop.addCommonMode(mode)
            try loop.addReadyPipe(forMode: mode) { _ in }
            loop.addTimer(forMode: mode, at: .now) { _ in }
            precondition(loop.run(mode: mode, for: .milliseconds(1)) == .timedOut)
        }
        let other = try onFreshThread { other in
            other.addIdleSource()
            other.perform { other.stop() }
            precondition(other.run(for: patience) == .stopped)
            return other
        }
        loop.atFirst(.beforeTimers) { precondition(loop.run(mode: "a", for: .milliseconds(1)) == .timedOut) }
        precondition(loop.run(for: .milliseconds(1)) == .timedOut)
        other.wakeUp()
    }
}

@Suite(.bounded) struct `The descriptors of a loop` {
    @Test func `are closed once its thread has ended`() async {
        await #expect(processExitsWith: .success) {
            try useALoop()
            try leavesNoDescriptor { for _ in 1...30 { try useALoop() } }
        }
    }

    @Test func `are not opened for a mode that never runs, nor for a limit`() async {
        await #expect(processExitsWith: .success) {
            try useALoop()
            try onFreshThread { loop in
                loop.addIdleSource()
                precondition(loop.run(for: .milliseconds(1)) == .timedOut)
                var modes = 0
                leavesNoDescriptor {
                    for _ in 0..<100 {
                        modes += 1
                        loop.addIdleSource(forMode: RunLoop.Mode("mode \(modes)"))
                        loop.addCommonMode(RunLoop.Mode("mode \(modes)"))
                        precondition(loop.run(for: .microseconds(10)) == .timedOut)
                    }
                }
            }
        }
    }
}
