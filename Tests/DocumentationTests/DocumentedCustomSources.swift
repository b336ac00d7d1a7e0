// The code of docs/custom-sources.md, compiled and run.

import EventLoop
import EventLoopTestSupport
import Synchronization
import Testing

/// Listing 3-3: commands that any thread adds, and that the thread of one loop carries out.
final class CommandQueue: Sendable {
    private let commands = Mutex<[String]>([])
    private let place = Mutex<(source: RunLoop.CustomSource, loop: RunLoop)?>(nil)

    /// Any thread.
    func add(_ command: String) { commands.withLock { $0.append(command) } }

    private func takeAll() -> [String] {
        commands.withLock { commands in
            defer { commands = [] }
            return commands
        }
    }

    /// Listing 3-7: makes the source and installs it. The three closures are those of Listings 3-4, 3-6 and 3-5.
    func install(on loop: RunLoop, listedIn directory: Directory, carryOut: @escaping @Sendable (String) -> Void) {
        let source = RunLoop.CustomSource(
            label: "commands",
            schedule: { [weak self] _, _ in if let self { directory.add(self) } },
            cancel: { [weak self] _, _ in if let self { directory.remove(self) } },
            perform: { [weak self] in
                for command in self?.takeAll() ?? [] { carryOut(command) }
            })
        place.withLock { $0 = (source, loop) }
        loop.add(source)
    }

    /// Listing 3-9: marks the source as ready, and wakes its loop. Any thread.
    func fire() {
        guard let (source, loop) = place.withLock({ $0 }) else { return }
        source.signal()
        loop.wakeUp()
    }

    /// Any thread.
    func invalidate() { place.withLock { $0 }?.source.invalidate() }
}

/// Listing 3-8: the queues that clients can give commands to.
final class Directory: Sendable {
    private let queues = Mutex<[CommandQueue]>([])

    var all: [CommandQueue] { queues.withLock { $0 } }
    func add(_ queue: CommandQueue) { queues.withLock { $0.append(queue) } }
    func remove(_ queue: CommandQueue) { queues.withLock { $0.removeAll { $0 === queue } } }
}

@Suite struct DocumentedCustomSources {
    @Test func `many signals before a perform are one`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let redraw: @Sendable () -> Void = { trace.add("redraw") }

            let changed = RunLoop.CustomSource(label: "redraw") { redraw() }
            loop.add(changed)

            // On any thread, as often as something changes:
            changed.signal()
            loop.wakeUp()

            changed.signal()
            _ = loop.run(for: .zero)
            #expect(trace.list == ["redraw"])
            changed.invalidate()
        }
    }

    @Test(
        .disabled(
            if: isUnderThreadSanitizer, "ThreadSanitizer cannot see into a Mutex, which the page shows, and reports races that do not exist"
        ))
    func `Listings 3-3 to 3-9: a client finds a queue, gives it commands, and loses it`() throws {
        let (directory, received) = (Directory(), Trace())
        let thread = plainThread {
            let queue = CommandQueue()
            queue.install(on: RunLoop.current, listedIn: directory) { received.add($0) }
            return RunLoop.current.run()
        }
        try waitUntil("the queue is listed") { !directory.all.isEmpty }
        let queue = directory.all[0]
        queue.add("one")
        queue.add("two")
        queue.fire()
        try waitUntil("the commands are carried out") { received.list == ["one", "two"] }
        queue.invalidate()
        #expect(directory.all.isEmpty)
        #expect(try thread.join() == .finished)
    }
}
