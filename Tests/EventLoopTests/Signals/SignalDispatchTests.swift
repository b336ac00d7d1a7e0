// Rule proved here: signals sent to the process reach a loop while Dispatch's threads, which block all signals, are busy, and while Dispatch
// watches another signal. In a process of its own: Dispatch keeps for ever what it makes for a signal source.

import Dispatch
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct SignalDispatchTests {
    @Test func `every signal to the process is told while Dispatch is busy and watches another one`() async {
        await #expect(processExitsWith: .success) {
            let signal = testSignal(24)
            let theirs = testSignal(25)
            let isOver = Box(false)
            let group = DispatchGroup()
            for _ in 0..<4 {
                DispatchQueue.global().async(group: group) {
                    while !isOver.value { sched_yield() }  // load, which ends when the signals have been told
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
                        // ThreadSanitizer keeps one of each kind for a thread that is busy, and the main one, which takes most, is.
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
            // Without the leak detector's look at the end: a signal source leaves a block of Dispatch's own behind.
            _exit(EXIT_SUCCESS)
        }
    }
}
