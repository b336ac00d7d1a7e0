// The main queue's handle does not keep a wait from ending (semantics 4, 12; decisions 6 and 7). The limit, a stop, a timer, an urgent
// source and the main queue itself take effect despite work on the main queue, descriptors of every priority and trigger, and a C event
// that is always ready at any of libevent's priorities. This holds with epoll, poll and select.
//
// The handle is readable until the main queue is drained, so it is ready in every iteration of libevent's loop.

import CLibevent
import Dispatch
import EventLoop
import EventLoopObserving
import EventLoopTestSupport
import Testing
import XCTest

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// XCTest imports Foundation, which has a RunLoop and a Pipe of its own.
private typealias RunLoop = EventLoop.RunLoop
private typealias Pipe = EventLoopTestSupport.Pipe

#if os(Linux)
final class MainQueueWaitTests: XCTestCase {
    fileprivate enum Aim: CaseIterable { case limit, stop, timer, urgentSource, mainQueue }

    fileprivate struct Case: CustomStringConvertible {
        var backend: String
        var triggers: [RunLoop.DescriptorSource.Trigger?]
        /// The priority of the C event, if there is one.
        var eventPriority: Int32?
        var aim: Aim
        var description: String {
            let triggers = triggers.map { $0.map { "\($0)" } ?? "-" }.joined(separator: ",")
            return "\(backend): descriptors [\(triggers)] C event \(eventPriority.map { "\($0)" } ?? "-") -> \(aim)"
        }
    }

    func testNoWaitOfTheMainLoopIsKeptFromEndingByTheMainQueue() throws {
        let watchdog = CaseWatchdog()
        defer { watchdog.end() }
        for (backend, disabled) in [("epoll", []), ("poll", ["EVENT_NOEPOLL"]), ("select", ["EVENT_NOEPOLL", "EVENT_NOPOLL"])] {
            let mode = RunLoop.Mode("waits with \(backend)")
            RunLoop.main.addCommonMode(mode)
            // libevent reads these variables when the loop creates the mode's base.
            for name in disabled { setenv(name, "1", 1) }
            let used = RunLoop.main.withEventBase(forMode: mode) { String(cString: event_base_get_method($0)) }
            for name in disabled { unsetenv(name) }
            XCTAssertEqual(used, backend)
            let all: [RunLoop.DescriptorSource.Trigger?] = [nil, .level, .edge, .oneShot]
            for high in all {
                for middle in all {
                    for low in all {
                        for priority in [nil, 0, 1, 2] as [Int32?] {
                            for aim in Aim.allCases {
                                let test = Case(backend: backend, triggers: [high, middle, low], eventPriority: priority, aim: aim)
                                watchdog.begin(test.description)
                                try MainQueueWait(test, mode).check()
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One case on the main loop.
private final class MainQueueWait: @unchecked Sendable {
    // SAFETY: accessed only on the main thread.

    private let test: MainQueueWaitTests.Case
    private let mode: RunLoop.Mode
    private let loop = RunLoop.main
    private let pipes = (0..<5).map { _ in Pipe() }
    private var sources: [RunLoop.DescriptorSource] = []
    private var eventCalls = 0
    private var isBlockPerformed = false
    private var isOver = false

    init(_ test: MainQueueWaitTests.Case, _ mode: RunLoop.Mode) { (self.test, self.mode) = (test, mode) }

    func check() throws {
        for (index, trigger) in test.triggers.enumerated() {
            guard let trigger else { continue }
            pipes[index].write()
            try add(pipes[index], trigger, [.high, .default, .low][index]) {}
        }
        let event = addEvent()
        DispatchQueue.main.async { [self] in
            isBlockPerformed = true
            if test.aim == .mainQueue { finish() }
        }
        let result = try run()
        XCTAssertEqual(result, test.aim == .limit ? .timedOut : .stopped, "\(test)")
        XCTAssertLessThanOrEqual(eventCalls, 32, "\(test)")
        for source in sources { source.invalidate() }
        if let event {
            event_free(event)
            Unmanaged.passUnretained(self).release()
        }
        // A block that is still queued must not run in the next case.
        if !isBlockPerformed {
            DispatchQueue.main.async { [loop] in loop.stop() }
            _ = loop.run(mode: mode, for: patience)
        }
        XCTAssertTrue(isBlockPerformed, "\(test)")
    }

    private func run() throws -> RunLoop.RunResult {
        switch test.aim {
        case .limit: return loop.run(mode: mode, for: .microseconds(100))
        case .stop: loop.perform(inModes: [mode]) { [self] in finish() }
        case .timer: loop.add(RunLoop.Timer(fireAt: .now) { [self] _ in finish() }, forMode: mode)
        case .urgentSource:
            pipes[3].write()
            try add(pipes[3], .level, .high) { [self] in finish() }
        case .mainQueue: break
        }
        return loop.run(mode: mode, for: patience)
    }

    private func finish() {
        isOver = true
        loop.stop()
    }

    private func add(
        _ pipe: Pipe, _ trigger: RunLoop.DescriptorSource.Trigger, _ priority: RunLoop.Priority, _ body: @escaping @Sendable () -> Void
    ) throws {
        let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger, priority: priority) { _, _ in
            withExtendedLifetime(pipe) { body() }
        }
        loop.add(source, forMode: mode)
        sources.append(source)
    }

    /// A C event that is always ready.
    private func addEvent() -> OpaquePointer? {
        guard let priority = test.eventPriority else { return nil }
        pipes[4].write()
        return loop.withEventBase(forMode: mode) { base in
            let event = event_new(
                base, pipes[4].readEnd, Int16(EV_READ | EV_PERSIST),
                { _, _, context in
                    let test = Unmanaged<MainQueueWait>.fromOpaque(context!).takeUnretainedValue()
                    // A limit depends on time, so any number of callbacks may come before it.
                    if test.test.aim != .limit && !test.isOver { test.eventCalls += 1 }
                }, Unmanaged.passRetained(self).toOpaque())
            precondition(event_priority_set(event, priority) == 0 && event_add(event, nil) == 0)
            return event
        }
    }
}
#endif
