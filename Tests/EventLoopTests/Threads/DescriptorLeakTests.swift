// Descriptors and threads (semantics 9.8, 13.9): nothing is left after threads have ended, and the wake-up descriptor lives as long as the
// RunLoop object, so that a late stop or wakeUp never writes into a stranger's descriptor.
//
// Descriptors belong to the process: each test has a process of its own.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.serialized) struct DescriptorLeakTests {
    @Test func `a thousand threads leave no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func useLoop() throws {
                try onFreshThread { loop in
                    for mode in ["default", "second"] as [RunLoop.Mode] {
                        let (pipe, mixed) = (Pipe(), SocketPair())
                        pipe.write()
                        loop.add(try readSource(pipe) { _ in pipe.readAll() }, forMode: mode)
                        // Kinds that have small sets of their own.
                        for trigger in [.level, .edge, .oneShot] as [RunLoop.DescriptorSource.Trigger] {
                            loop.add(
                                try RunLoop.DescriptorSource(descriptor: mixed.near, events: .closed, trigger: trigger) { _, _ in
                                    withExtendedLifetime(mixed) {}
                                }, forMode: mode)
                        }
                        loop.add(RunLoop.Timer(after: .microseconds(10)) { _ in }, forMode: mode)
                        _ = loop.run(mode: mode, for: .microseconds(100))
                    }
                }
            }
            for _ in 0..<10 { try useLoop() }
            let before = openDescriptors()
            for _ in 0..<1_000 { try useLoop() }
            #expect(openDescriptors().count < before.count + 10, "\(before) \(openDescriptors())")
        }
    }

    @Test func `a thousand RunLoopThreads leave no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func useThread() throws {
                let thread = try RunLoopThread(name: "short")
                let answer = try thread.runLoop.performAndWait { 42 }
                thread.stop()
                #expect(thread.join(timeout: patience) && answer == 42)
            }
            for _ in 0..<10 { try useThread() }
            let before = openDescriptors()
            for _ in 0..<1_000 { try useThread() }
            #expect(openDescriptors().count < before.count + 10, "\(before) \(openDescriptors())")
        }
    }

    @Test func `sources that come and go on one loop leave no descriptor behind`() async {
        await #expect(processExitsWith: .success) {
            let (before, after) = try onSimulatedTime { loop, _ in
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                func useSources() throws {
                    let pair = SocketPair()
                    let events: [RunLoop.DescriptorSource.Events] = [.read, .closed, [.read, .closed]]
                    for trigger in [.level, .edge, .oneShot] as [RunLoop.DescriptorSource.Trigger] {
                        let sources = try events.map {
                            try RunLoop.DescriptorSource(descriptor: pair.near, events: $0, trigger: trigger) { _, _ in }
                        }
                        for source in sources { loop.add(source) }
                        _ = loop.run(for: .zero)
                        for source in sources { source.invalidate() }
                        _ = loop.run(for: .zero)
                    }
                }
                for _ in 0..<5 { try useSources() }
                let before = openDescriptors()
                for _ in 0..<200 { try useSources() }
                return (before, openDescriptors())
            }
            #expect(after.count < before.count + 10, "\(after) \(before)")
        }
    }

    @Test func `a loop that somebody holds keeps its wake-up descriptor from strangers after its thread has ended`() async {
        await #expect(processExitsWith: .success) {
            let loops = try (0..<20).map { _ in
                try onFreshThread { loop in
                    let alive = loop.keepAlive()
                    defer { alive.cancel() }
                    _ = loop.run(for: .zero)
                    return loop
                }
            }
            // Whatever numbers the ended loops gave back are these pipes' now.
            let pipes = (0..<100).map { _ in Pipe() }
            for loop in loops {
                loop.wakeUp()
                loop.stop()
                loop.stop(sticky: true)
            }
            #expect(pipes.map { $0.readAll() } == Array(repeating: "", count: 100))
        }
    }
}
