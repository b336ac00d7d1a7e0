// A watched descriptor is closed, and another file takes its number (semantics 4.5):
//  - When the loop watches the number again, it compares the file with the one that it watched before. The new source is served. The
//    old source fails: it has a `failure`, is invalid, its onInvalidation is called, and its handler is never called again.
//  - The same holds while a duplicate of the old file is open. The duplicate's events must not reach any handler.
//  - The loop also compares the files at `events =`, at `rearm`, in the first run of another mode, and when an event arrives for a
//    number that is now another file.
//
// dup2 closes a number and reuses it in one step, so that no other test's thread can take the number in between.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory)) struct DescriptorReuseTests {
    /// A loop in manual time with a source that it has watched. `reuse()` gives the source's number to the read end of another pipe.
    private final class Stage: Sendable {
        let trace = Trace()
        let old = Pipe()
        let new = Pipe()
        let loop: RunLoop
        let oldSource: RunLoop.DescriptorSource
        /// A second descriptor of the old file, or -1.
        let duplicate: Int32

        init(_ loop: RunLoop, trigger: RunLoop.DescriptorSource.Trigger = .level, keepingDuplicate: Bool = false, watched: Bool = true)
            throws
        {
            self.loop = loop
            let (trace, old) = (trace, old)
            duplicate = keepingDuplicate ? fcntl(old.readEnd, F_DUPFD_CLOEXEC, 0) : -1
            oldSource = try readSource(old, trigger: trigger) { _ in trace.add("old") }
            oldSource.onInvalidation { trace.add("let go") }
            loop.add(oldSource)
            if watched { _ = loop.run(for: .zero) }
        }

        deinit { if duplicate >= 0 { close(duplicate) } }

        func reuse() { precondition(dup2(new.readEnd, old.readEnd) == old.readEnd) }

        func addNewSource(mode: RunLoop.Mode = .default) throws {
            let (trace, new) = (trace, new)
            loop.add(
                try RunLoop.DescriptorSource(descriptor: old.readEnd, events: .read) { [old] _, _ in
                    withExtendedLifetime(old) { trace.add("new:\(new.readAll())") }
                }, forMode: mode)
        }

        func poll(_ count: Int = 3, mode: RunLoop.Mode = .default) {
            for _ in 0..<count { _ = loop.run(mode: mode, for: .zero) }
        }

        /// The recorded trace, and the state of the old source.
        func outcome() -> String {
            let fate = oldSource.isValid ? "valid" : oldSource.failure == nil ? "invalid" : "failed"
            return "\(trace.list.sorted().joined(separator: " ")); old \(fate)"
        }
    }

    @Test(arguments: [false, true])
    func `a source on the reused number is served, and the old source fails`(duplicateAlive: Bool) throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: duplicateAlive)
            stage.reuse()
            try stage.addNewSource()
            stage.poll()
            stage.new.write("ab")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "let go new:ab; old failed")
    }

    @Test func `events of the old file, kept open by a duplicate, reach no handler and do not spin the loop`() throws {
        let (outcome, passes) = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            stage.reuse()
            try stage.addNewSource()
            stage.old.write("x")
            stage.poll()
            stage.trace.add("1")
            let before = loop.statistics.passes
            _ = loop.run(for: .milliseconds(10))
            let passes = loop.statistics.passes - before
            stage.new.write("ab")
            stage.poll()
            return (stage.outcome(), passes)
        }
        #expect(outcome == "1 let go new:ab; old failed")
        #expect(passes == 1)
    }

    @Test func `an event for a number that is now another file calls no handler, and the source fails`() throws {
        let (outcome, passes) = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            stage.reuse()
            // The duplicate keeps the old file in the kernel's set, under a number that now belongs to the new file.
            stage.old.write("x")
            stage.poll()
            let before = loop.statistics.passes
            _ = loop.run(for: .milliseconds(10))
            return (stage.outcome(), loop.statistics.passes - before)
        }
        #expect(outcome == "let go; old failed")
        #expect(passes == 1)
    }

    @Test func `after an event for a reused number, the base still serves its other sources`() throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            let (bystander, edge) = (Pipe(), Pipe())
            loop.add(try readSource(bystander) { _ in stage.trace.add("bystander:\(bystander.readAll())") })
            loop.add(try readSource(edge, trigger: .edge) { _ in stage.trace.add("edge:\(edge.readAll())") })
            stage.poll(1)
            stage.reuse()
            stage.old.write("x")
            stage.poll()
            bystander.write("b")
            edge.write("e")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "bystander:b edge:e let go; old failed")
    }

    @Test(arguments: [false, true])
    func `setting events after clearing them detects a reused number`(duplicateAlive: Bool) throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: duplicateAlive)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            stage.oldSource.events = []
            stage.poll(1)
            stage.reuse()
            stage.oldSource.events = .read
            stage.new.write("ab")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "let go; old failed")
    }

    @Test(arguments: [false, true])
    func `changing events detects a reused number`(duplicateAlive: Bool) throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: duplicateAlive)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            stage.reuse()
            stage.oldSource.events = [.read, .closed]
            stage.new.write("ab")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "let go; old failed")
    }

    @Test(arguments: [false, true])
    func `rearming detects a reused number`(duplicateAlive: Bool) throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, trigger: .oneShot, keepingDuplicate: duplicateAlive)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            stage.old.write("x")
            stage.poll(1)
            stage.reuse()
            stage.oldSource.rearm()
            stage.new.write("ab")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "let go old; old failed")
    }

    @Test(arguments: [false, true])
    func `the first run of another mode detects a reused number`(duplicateAlive: Bool) throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: duplicateAlive)
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            loop.add(stage.oldSource, forMode: "other")
            stage.reuse()
            stage.new.write("ab")
            stage.poll(mode: "other")
            return stage.outcome()
        }
        #expect(outcome == "let go; old failed")
    }

    @Test func `the new file is served in another mode if only that mode watches it`() throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            stage.reuse()
            try stage.addNewSource(mode: "other")
            stage.new.write("ab")
            stage.poll(mode: "other")
            return stage.trace.list.filter { $0 != "let go" }.joined(separator: " ")
        }
        #expect(outcome == "new:ab")
    }

    @Test func `a source invalidated before its number is reused leaves no registration behind`() throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            stage.oldSource.invalidate()
            stage.reuse()
            try stage.addNewSource()
            stage.old.write("x")
            stage.poll()
            stage.new.write("ab")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "let go new:ab; old invalid")
    }

    @Test func `a source whose descriptor was closed fails when it is watched again`() throws {
        let outcome = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            // A high number that no other test's files get.
            let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 700)
            let source = try RunLoop.DescriptorSource(descriptor: number, events: .read, trigger: .oneShot) { _, _ in trace.add("called") }
            source.onInvalidation { trace.add("let go") }
            loop.add(source)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            pipe.write()
            _ = loop.run(for: .zero)
            close(number)
            source.rearm()
            trace.add("\(loop.run(for: .milliseconds(10)))")
            return "\(trace), valid \(source.isValid), \(source.failure == .badDescriptor(number))"
        }
        #expect(outcome == "called let go timedOut, valid false, true")
    }

    @Test func `the failure of the last source ends the run`() throws {
        let result = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            stage.reuse()
            stage.old.write("x")
            let result = loop.run(for: .seconds(1))
            return "\(result), \(stage.outcome())"
        }
        #expect(result == "finished, let go; old failed")
    }

    @Test func `a number reused by its own file is still the same file`() throws {
        let outcome = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, trigger: .oneShot, keepingDuplicate: true)
            precondition(dup2(stage.duplicate, stage.old.readEnd) == stage.old.readEnd)
            stage.oldSource.rearm()
            stage.poll()
            stage.old.write("x")
            stage.poll()
            return stage.outcome()
        }
        #expect(outcome == "old; old valid")
    }

    @Test func `a source that did not fail has no failure, whether it is valid or was invalidated explicitly`() throws {
        let pipe = Pipe()
        let source = try readSource(pipe) { _ in }
        #expect(source.failure == nil)
        source.invalidate()
        #expect(source.failure == nil)
    }
}
