// A descriptor that is closed while it is watched, and its number taken by another file (semantics 4.5):
//  - Watched anew, the number is compared with what was watched. The new source is heard; the old one fails: it has a `failure`, is
//    invalid, its onInvalidation is called, its handler never again.
//  - So too with a duplicate of the old file alive, whose events must reach nobody.
//  - "Anew" is also: `events =`, `rearm`, the first run of another mode. And an event that arrives for a number that is another file now.
//
// dup2 closes a number and takes it in one step, so that no other test's thread can come between.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct DescriptorReuseTests {
    /// A loop on simulated time with a source that has been watched, whose number is then another pipe's read end.
    private final class Stage: Sendable {
        let trace = Trace()
        let old = Pipe()
        let new = Pipe()
        let loop: RunLoop
        let oldSource: RunLoop.DescriptorSource
        /// Another number for the old file, where one is wanted.
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

        /// What was recorded, and what became of the old source.
        func outcome() -> String {
            let fate = oldSource.isValid ? "valid" : oldSource.failure == nil ? "invalid" : "failed"
            return "\(trace.list.sorted().joined(separator: " ")); old \(fate)"
        }
    }

    @Test(arguments: [false, true])
    func `a source on the reused number is heard, and the old source fails`(duplicateAlive: Bool) throws {
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

    @Test func `events of the old file, kept open by a duplicate, reach nobody and do not spin the loop`() throws {
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

    @Test func `an event that arrives for a number that is another file now calls nobody: the source fails`() throws {
        let (outcome, passes) = try inManualTime { loop, _, _ in
            let stage = try Stage(loop, keepingDuplicate: true)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            stage.reuse()
            // The duplicate keeps the old file in the kernel's set, under a number that is the new file's.
            stage.old.write("x")
            stage.poll()
            let before = loop.statistics.passes
            _ = loop.run(for: .milliseconds(10))
            return (stage.outcome(), loop.statistics.passes - before)
        }
        #expect(outcome == "let go; old failed")
        #expect(passes == 1)
    }

    @Test func `others on the same base are heard after such an event`() throws {
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
    func `setting events watches anew`(duplicateAlive: Bool) throws {
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
    func `changing events watches anew`(duplicateAlive: Bool) throws {
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
    func `rearming watches anew`(duplicateAlive: Bool) throws {
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
    func `the first run of another mode watches anew`(duplicateAlive: Bool) throws {
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

    @Test func `the new file watched in another mode only is heard there`() throws {
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

    @Test func `a source invalidated before its number is reused leaves nothing behind`() throws {
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

    @Test func `a descriptor closed under its source, and watched anew, fails it`() throws {
        let outcome = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            // A high number, which no other test's files get.
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

    @Test func `a number reused by its own file is the same file`() throws {
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

    @Test func `a source without failure has none, whether valid or invalidated by hand`() throws {
        let pipe = Pipe()
        let source = try readSource(pipe) { _ in }
        #expect(source.failure == nil)
        source.invalidate()
        #expect(source.failure == nil)
    }
}
