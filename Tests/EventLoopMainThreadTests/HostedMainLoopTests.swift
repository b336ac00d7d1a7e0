// The main loop in a host, on the main thread (semantics 19.16):
//  - A step of the main loop in a common mode serves the main queue.
//  - If the host is the main queue, another loop drains it, and nothing of it is lost.
//  - A private queue cannot drive a loop, but it can watch the descriptor for the loop's thread.

import Dispatch
import EventLoop
import EventLoopTestSupport
import Testing
import XCTest

private typealias Loop = EventLoop.RunLoop

#if os(Linux)
final class HostedMainLoopTests: XCTestCase {
    private let loop = Loop.main

    func testAStepOfTheMainLoopServesTheMainQueue() throws {
        let host = MainHost(try loop.hosted())
        let hosted = host.hosted
        defer { hosted.invalidate() }
        while isReadable(hosted.descriptor) { hosted.step() }  // ends: nobody else queues anything
        let trace = Trace()
        try plainThread {
            DispatchQueue.main.async {
                trace.add("block")
                // A step in a block of the main queue leaves the next block to the step around it.
                DispatchQueue.main.async { trace.add("second") }
                host.hosted.step()
                trace.add("end")
            }
        }.join()
        while trace.list.count < 3 {  // ends: the wait has a bound
            try waitUntilReadable(hosted.descriptor, "blocks of the main queue")
            hosted.step()
        }
        XCTAssertEqual(trace.description, "block end second")
        for _ in 0..<10 where isReadable(hosted.descriptor) { hosted.step() }
        XCTAssertFalse(isReadable(hosted.descriptor))
    }

    func testTheMainQueueHostsTheMainLoop() throws {
        let host = MainHost(try loop.hosted())
        let trace = Trace()
        let watch = DispatchSource.makeReadSource(fileDescriptor: host.hosted.descriptor, queue: .main)
        watch.setEventHandler { host.hosted.step() }
        watch.activate()
        defer {
            watch.cancel()
            host.hosted.invalidate()
        }
        let timer = Loop.Timer(after: .milliseconds(5)) { _ in trace.add("timer") }
        loop.add(timer)
        // Foundation's loop drains the main queue on this thread. It reads the handle that the hosted loop's base watches, too.
        let poster = plainThread { [loop] in
            for number in 1...200 {
                loop.perform { trace.add("post") }
                DispatchQueue.main.async { trace.add("block") }
                try waitUntil("post and block \(number)") { trace.list.count { $0 != "timer" } == 2 * number }
            }
        }
        let end = ContinuousClock.now + patience
        while trace.list.count < 401 && ContinuousClock.now < end {
            _ = Foundation.RunLoop.main.run(mode: .default, before: Date(timeIntervalSinceNow: 0.01))
        }
        try poster.join()
        XCTAssertEqual(trace.list.count { $0 == "block" }, 200)
        XCTAssertEqual(trace.list.count { $0 == "post" }, 200)
        XCTAssertEqual(trace.list.count { $0 == "timer" }, 1)
    }

    func testAPrivateQueueWatchesForTheThreadThatSteps() throws {
        try onFreshThread { loop in
            let hosted = try loop.hosted()
            let isReady = DispatchSemaphore(value: 0)
            let watch = DispatchSource.makeReadSource(fileDescriptor: hosted.descriptor, queue: DispatchQueue(label: "watch"))
            watch.setEventHandler { isReady.signal() }
            watch.activate()
            let isCancelled = Gate()
            watch.setCancelHandler { isCancelled.open() }
            let trace = Trace()
            let poster = plainThread { for _ in 1...100 { loop.perform { trace.add("post") } } }
            while trace.list.count < 100 {
                guard isReady.wait(timeout: .now() + 1_000) == .success else { throw WaitedTooLong(for: "a post", #_sourceLocation) }
                hosted.step()
            }
            try poster.join()
            watch.cancel()
            isCancelled.wait()
            hosted.invalidate()
        }
    }
}

/// A hosted loop that blocks of the main queue step.
private final class MainHost: @unchecked Sendable {
    // SAFETY: used on the main thread.
    let hosted: Loop.HostedLoop
    init(_ hosted: Loop.HostedLoop) { self.hosted = hosted }
}

private func isReadable(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, 0) > 0
}
#endif
