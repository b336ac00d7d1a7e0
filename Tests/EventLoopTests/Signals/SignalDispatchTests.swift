// Rule proved here: signals sent to the process reach a loop while Dispatch's threads, which block all signals, are busy, and while
// Dispatch watches another signal. The test has a process of its own, because Dispatch never frees a signal source's memory.

import Dispatch
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct SignalDispatchTests {
    @Test func `a source counts every signal to the process while Dispatch is busy and watches another signal`() async {
        await #expect(processExitsWith: .success) {
            let signal = testSignal(24)
            let theirs = testSignal(25)
            let isOver = Box(false)
            let group = DispatchGroup()
            for _ in 0..<4 {
                DispatchQueue.global().async(group: group) {
                    while !isOver.value { sched_yield() }  // load; ends when the source has counted all signals
                }
            }
            let heardByDispatch = DispatchSemaphore(value: 0)
            let dispatchSource = DispatchSource.makeSignalSource(signal: theirs, queue: .global())
            dispatchSource.setEventHandler { heardByDispatch.signal() }
            dispatchSource.activate()

            let sent = 200
            let told = Box(0)
            let result = try onFreshThread { loop in
                letThrough(signal)
                let source = try RunLoop.SignalSource(signal: signal) { _, count in
                    told.change { $0 += count }
                    if told.value == sent { loop.stop() }
                }
                loop.add(source)
                let sender = plainThread {
                    for number in 1...sent {
                        precondition(kill(getpid(), signal) == 0)
                        // ThreadSanitizer keeps one pending signal of each kind for a busy thread, such as the main thread here.
                        if roundsDivisor > 1 { try waitUntil("the signal") { told.value == number } }
                    }
                }
                let result = loop.run(for: patience)
                try sender.join()
                source.invalidate()
                return result
            }
            precondition(result == .stopped && told.value == sent, "\(result), told \(told.value)")
            isOver.value = true
            precondition(group.wait(timeout: .now() + .seconds(600)) == .success, "the busy threads of Dispatch do not end")
            withExtendedLifetime((dispatchSource, heardByDispatch)) {}
            // Skips the leak detector's check at exit, because a signal source leaves a block of Dispatch's own behind.
            _exit(EXIT_SUCCESS)
        }
    }
}
