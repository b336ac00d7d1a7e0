// Closures, messages and jobs from thread to thread.

import EventLoop
import Synchronization

/// A reference that one side stores for another to take, once.
final class Handle<Value: AnyObject & Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    func give(_ new: Value) { value.withLock { $0 = new } }
    func take() -> Value? {
        value.withLock { value in
            defer { value = nil }
            return value
        }
    }
}

/// Bursts of messages to one port, which forwards them to another.
final class Ports: Part, @unchecked Sendable {
    override func start() throws {
        let messages = book.account("port messages delivered")
        let (first, second, sender) = (try thread("first port"), try thread("second port"), try thread("port sender"))
        let last = Number(0)
        let end = RunLoop.Port { [book] _, message in
            if Int(message.id) != last.value + 1 { book.fault("port message \(message.id) came after \(last.value)") }
            last.value = Int(message.id)
            messages.finish()
        }
        let start = RunLoop.Port(capacity: 64) { [book] _, message in
            do { try end.send(message, before: .now + .seconds(60)) } catch { book.fault("a message was not passed on: \(error)") }
        }
        first.runLoop.add(start)
        second.runLoop.add(end)
        let number = Number(0)
        drive(sender, every: .milliseconds(4)) { [book] in
            for _ in 0..<8 {
                number.value += 1
                messages.ask()
                let message = RunLoop.PortMessage(id: UInt32(number.value), components: [.bytes([UInt8](repeating: 1, count: 200))])
                do { try start.send(message, before: .now + .seconds(60)) } catch { book.fault("a message was not sent: \(error)") }
            }
        }
    }
}

/// Performs of all kinds, and nested runs in the handlers that they interrupt.
final class Performs: Part, @unchecked Sendable {
    override func start() throws {
        let accounts = ["performs", "blocks", "delayed performs", "performs for two modes", "performs waited for", "performs awaited"]
            .map { book.account($0) }
        let target = try thread("performs").runLoop
        drive(try thread("performer"), every: .milliseconds(5)) { [book] in
            @Sendable func count(_ account: Account, _ perform: (@escaping @Sendable () -> Void) -> Bool) {
                account.ask()
                if !perform({ account.finish() }) { account.takeBack() }
            }
            count(accounts[0]) { target.perform($0) }
            count(accounts[1]) { target.performBlock($0) }
            count(accounts[2]) {
                target.perform(after: .microseconds(.random(in: 0...20_000)), $0)
                return true
            }
            count(accounts[3]) { target.perform(inModes: [.default, "nested"], $0) }
            accounts[4].ask()
            do { try target.performAndWait { accounts[4].finish() } } catch { book.fault("performAndWait: \(error)") }
            accounts[5].ask()
            Task {
                do { try await target.performAsync { accounts[5].finish() } } catch { book.fault("performAsync: \(error)") }
            }
        }
    }
}

final class NestedRuns: Part, @unchecked Sendable {
    override func start() throws {
        let runs = book.account("nested runs stopped")
        let thread = try thread("nested runs")
        let loop = thread.runLoop
        drive(thread, every: .milliseconds(10)) { [self] in nest(loop, runs, depth: 3) }
    }

    private func nest(_ loop: RunLoop, _ runs: Account, depth: Int) {
        if depth == 0 { return }
        let mode = RunLoop.Mode("nested \(depth)")
        runs.ask()
        loop.add(
            RunLoop.Timer(after: .microseconds(300)) { [self] _ in
                nest(loop, runs, depth: depth - 1)
                loop.stop()
            }, forMode: mode)
        let result = loop.run(mode: mode, for: .seconds(60))
        if result == .stopped { runs.finish() } else { book.fault("a nested run was \(result)") }
    }
}

/// An actor on a loop. The tasks that call it sleep there, wait with a limit, or prefer its executor.
final class Jobs: Part, @unchecked Sendable {
    private actor Tally {
        private let loop: RunLoop
        private let account: Account
        nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

        init(_ loop: RunLoop, _ account: Account) {
            self.loop = loop
            self.account = account
        }

        /// False outside the loop.
        func count() -> Bool {
            account.finish()
            return loop.isCurrent
        }
    }

    override func start() throws {
        let calls = book.account("actor calls")
        let tasks = book.account("tasks")
        let loop = try thread("actors").runLoop
        let tally = Tally(loop, calls)
        drive(try thread("task starter"), every: .milliseconds(10)) { [book] in
            for index in 0..<4 {
                tasks.ask()
                calls.ask(3)
                let body: @Sendable () async throws -> Void = {
                    for _ in 0..<3 where await !tally.count() { book.fault("an actor's call left its loop") }
                    try await loop.clock.sleep(for: .milliseconds(index))
                    if index == 1 { _ = try? await loop.withTimeout(.milliseconds(1)) { try await loop.clock.sleep(for: .seconds(3600)) } }
                    tasks.finish()
                }
                if index < 2 { Task(executorPreference: loop) { try await body() } } else { Task { try await body() } }
            }
        }
    }
}

/// Threads with loops, which run for a moment and end.
final class Comers: Part, @unchecked Sendable {
    override func start() throws {
        let performs = book.account("performs of threads that end")
        let ends = book.account("threads ended")
        drive(try thread("starter"), every: .milliseconds(25)) { [book] in
            do {
                ends.ask()
                let thread = try RunLoopThread(name: "comer", teardown: { _ in ends.finish() })
                for _ in 0..<5 {
                    performs.ask()
                    if !thread.runLoop.perform({ performs.finish() }) { performs.takeBack() }
                }
                // The thread ends when its last reference is released, or on a stop.
                if Bool.random() { thread.stop() }
                if Bool.random() {
                    thread.stop()
                    if !thread.join(timeout: .seconds(60)) { book.fault("a thread that was told to stop goes on") }
                } else {
                    thread.stop()
                }
            } catch {
                book.fault("no thread: \(error)")
            }
        }
    }
}
