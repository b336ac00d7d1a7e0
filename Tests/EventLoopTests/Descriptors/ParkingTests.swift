// Descriptors in several modes that have run. If one mode serves a source again and again, the source leaves the bases of the other modes,
// and returns when they run. Only the kernel can tell the difference.

#if os(Linux)
import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct ParkingTests {
    /// A loop with a descriptor source in `default` and `other`, which have both run, and a method that makes a mode serve it repeatedly.
    private struct Stage {
        let loop: RunLoop
        let pipe = Pipe()
        let trace = Trace()
        let source: RunLoop.DescriptorSource

        init(_ loop: RunLoop, trigger: RunLoop.DescriptorSource.Trigger = .level) throws {
            self.loop = loop
            source = try readSource(pipe, trigger: trigger) { [pipe, trace] _ in
                trace.add("\(loop.currentMode!):\(pipe.readAll())")
            }
            loop.add(source)
            loop.add(source, forMode: "other")
            _ = loop.run(until: .distantPast)
            _ = loop.run(mode: "other", until: .distantPast)
        }

        func serve(_ times: Int, mode: RunLoop.Mode = .default) {
            for _ in 0..<times {
                pipe.write()
                _ = loop.run(mode: mode, until: .distantPast)
            }
        }

        var watches: Int { kernelWatches(of: pipe.readEnd) }
    }

    @Test func `a source that one mode serves often is only in the base of that mode`() throws {
        let watches = try onFreshThread { loop in
            let stage = try Stage(loop)
            let before = stage.watches
            stage.serve(31)
            let almost = stage.watches
            stage.serve(1)
            return [before, almost, stage.watches]
        }
        #expect(watches == [2, 2, 1])
    }

    @Test func `a parked source is served in another mode that runs`() throws {
        let trace = try onFreshThread { loop in
            let stage = try Stage(loop)
            stage.serve(40)
            _ = stage.trace.take()
            stage.pipe.write("ab")
            _ = loop.run(mode: "other", until: .distantPast)
            stage.pipe.write("cd")
            _ = loop.run(until: .distantPast)
            return stage.trace.description
        }
        #expect(trace == "other:ab default:cd")
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .edge])
    func `a parked source is served in a nested run of another mode`(_ trigger: RunLoop.DescriptorSource.Trigger) throws {
        let trace = try onFreshThread { loop in
            let stage = try Stage(loop, trigger: trigger)
            stage.serve(40)
            _ = stage.trace.take()
            loop.performBlock {
                stage.pipe.write("ab")
                _ = loop.run(mode: "other", until: .distantPast)
            }
            _ = loop.run(until: .distantPast)
            return stage.trace.description
        }
        #expect(trace == "other:ab")
    }

    @Test func `modes that alternate keep a source in both bases`() throws {
        let watches = try onFreshThread { loop in
            let stage = try Stage(loop)
            for _ in 0..<8 {
                stage.serve(20)
                stage.serve(20, mode: "other")
            }
            return stage.watches
        }
        #expect(watches == 2)
    }

    @Test func `a nested run of another mode after each call keeps a source in both bases`() throws {
        let watches = try onFreshThread { loop in
            let stage = try Stage(loop)
            for _ in 0..<100 {
                stage.serve(1)
                loop.performBlock { _ = loop.run(mode: "other", until: .distantPast) }
                _ = loop.run(until: .distantPast)
            }
            return stage.watches
        }
        #expect(watches == 2)
    }

    @Test func `a parked source that is removed from a mode does not return to its base`() throws {
        let outcome = try onFreshThread { loop in
            let stage = try Stage(loop)
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            stage.serve(40)
            _ = stage.trace.take()
            loop.remove(stage.source, forMode: "other")
            stage.pipe.write()
            _ = loop.run(mode: "other", until: .distantPast)
            return "\(stage.trace)|\(stage.watches)"
        }
        #expect(outcome == "|1")
    }

    @Test func `a parked source that is invalidated ends at once and is released`() throws {
        let outcome = try onFreshThread { loop in
            let trace = Trace()
            weak var released: RunLoop.DescriptorSource?
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            do {
                let stage = try Stage(loop)
                stage.serve(40)
                stage.source.onInvalidation { trace.add("ended") }
                stage.source.invalidate()
                released = stage.source
            }
            _ = loop.run(mode: "other", until: .distantPast)
            return "\(trace)|\(released == nil)"
        }
        #expect(outcome == "ended|true")
    }

    @Test func `a parked source returns with the events that were set while it was parked`() throws {
        let trace = try onFreshThread { loop in
            let stage = try Stage(loop)
            stage.serve(40)
            _ = stage.trace.take()
            stage.source.events = []
            stage.pipe.write()
            _ = loop.run(mode: "other", until: .distantPast)
            stage.trace.add("silent")
            stage.source.events = .read
            _ = loop.run(mode: "other", until: .distantPast)
            return stage.trace.description
        }
        #expect(trace == "silent other:x")
    }

    @Test func `the end of a loop invalidates a parked source`() throws {
        let ended = Trace()
        try onFreshThread { loop in
            let stage = try Stage(loop)
            stage.serve(40)
            stage.source.onInvalidation { ended.add("ended") }
        }
        #expect(ended.description == "ended")
    }
}
#endif
