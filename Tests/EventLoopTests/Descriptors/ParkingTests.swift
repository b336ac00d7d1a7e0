// Descriptors in several modes that have run: one that is served again and again in one mode leaves the bases of the others, and returns
// when they run. Nobody may notice but the kernel.

#if os(Linux)
import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct ParkingTests {
    /// A loop on which a descriptor source stands in `default` and `other`, both of which have run, and how to serve it a number of times.
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

    @Test func `a source that is served often stands in the base of the running mode alone`() throws {
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

    @Test func `its events are served in another mode that runs`() throws {
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
    func `its events are served in a run of another mode nested in its own handler`(_ trigger: RunLoop.DescriptorSource.Trigger) throws {
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

    @Test func `modes that take turns keep it in both bases`() throws {
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

    @Test func `a run of another mode nested in each serving keeps it in both bases`() throws {
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

    @Test func `taken out of the mode that it has left the base of, it does not return`() throws {
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

    @Test func `invalidated while it is away, it ends at once and nothing holds it`() throws {
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

    @Test func `what it watches for is as it was set while it was away`() throws {
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

    @Test func `the end of a loop ends what is away`() throws {
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
