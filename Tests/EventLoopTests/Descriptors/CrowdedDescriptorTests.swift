// Many sources on one descriptor, and many that fail (semantics 4.2, 4.5, 4.19, 9.12):
//  - Adding a source, changing its events, rearming it and removing it do not look at the other sources of the descriptor.
//  - What is found to fail while the loop deals with another failure fails afterwards, so failures do not nest, however many there are. A stop
//    ends the run among them.
//  - What a pass has ended takes no memory after it.

import EventLoopTestSupport
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.memory, .threads)) struct CrowdedDescriptorTests {
    private static let count = 200

    /// How many sources were compared with the file of their descriptor in what `body` does.
    private func comparisons(
        _ trigger: RunLoop.DescriptorSource.Trigger, _ events: RunLoop.DescriptorSource.Events,
        _ body: @escaping @Sendable (RunLoop, Pipe, [RunLoop.DescriptorSource]) -> Void
    ) throws -> Int {
        try onFreshThread { loop in
            let pipe = Pipe()
            let sources = try (0..<Self.count).map { _ in
                try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: events, trigger: trigger) { _, _ in }
            }
            loop.addIdleSource()
            loop.withEventBase { _ in }
            for source in sources { loop.add(source) }
            body(loop, pipe, sources)
            _ = loop.run(until: .distantPast)
            for source in sources { source.invalidate() }
            return loop.shared.withLock { $0.modes[0].owned.poller!.state.testsOnlyComparisons.value }  // the mode has a base
        }
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .edge, .oneShot])
    func `a source that is added or removed looks at no other source of its descriptor`(trigger: RunLoop.DescriptorSource.Trigger) throws {
        #expect(try comparisons(trigger, .read) { _, _, _ in } == 0)
    }

    @Test func `a source whose events change looks at no other source of its descriptor`() throws {
        let compared = try comparisons(.level, []) { _, _, sources in
            for source in sources { source.events = .read }
            for source in sources { source.events = [] }
        }
        #expect(compared == 0)
    }

    @Test func `a source that is rearmed looks at no other source of its descriptor`() throws {
        let compared = try comparisons(.oneShot, .read) { loop, pipe, sources in
            pipe.write()
            _ = loop.run(until: .distantPast)
            for source in sources { source.rearm() }
        }
        #expect(compared == 0)
    }

    @Test func `a pass in which many sources end keeps no memory for them`() throws {
        let capacity = try onFreshThread { loop in
            let pipe = Pipe()
            let all = Locked<[RunLoop.DescriptorSource]>([])
            let sources = try (0..<1_000).map { _ in
                try readSource(pipe) { _ in for source in all.withLock({ $0 }) { source.invalidate() } }
            }
            all.withLock { $0 = sources }
            loop.addIdleSource()
            loop.withEventBase { _ in }
            for source in sources { loop.add(source) }
            pipe.write()
            _ = loop.run(until: .distantPast)
            let ended = all.withLock { all in
                defer { all = [] }
                return all.allSatisfy { !$0.isValid }
            }
            #expect(ended)
            return loop.shared.withLock { $0.modes[0].owned.poller!.state.retired.capacity }  // the mode has a base
        }
        #expect(capacity <= 256)
    }

    @Test func `sources of a descriptor that another file takes fail, all of them, beside the first source on the new file`() throws {
        let (failed, served) = try onFreshThread { loop in
            let (old, new) = (Pipe(), Pipe())
            let served = Box(0)
            let sources = try (0..<Self.count).map { _ in try readSource(old) { _ in } }
            for source in sources { loop.add(source) }
            _ = loop.run(until: .distantPast)
            precondition(dup2(new.readEnd, old.readEnd) == old.readEnd, "dup2")
            let successors = try (0..<3).map { _ in try readSource(old) { _ in served.increment() } }
            for source in successors { loop.add(source) }
            new.write()
            _ = loop.run(until: .distantPast)
            for source in successors { source.invalidate() }
            return (sources.filter { $0.failure != nil && !$0.isValid }.count, served.value)
        }
        #expect(failed == Self.count)
        #expect(served == 3)
    }

    // MARK: Failures

    @Test func `sources that another thread adds while the loop deals with failures fail one after another`() throws {
        try onFreshThread { loop in
            let chain = try Chain(loop, count: Self.count)
            loop.withEventBase { _ in }
            loop.add(chain.sources[0])
            #expect(loop.run() == .finished)
            #expect(chain.sources.allSatisfy { $0.failure != nil && !$0.isValid })
            #expect(chain.ended.list == (0..<Self.count).map(String.init))
            // Nested, each failure would take several frames of the stack.
            #expect(chain.framesBetweenLooks < Self.count / 2)
        }
    }

    @Test func `a stop ends a run in which one source after another fails`() throws {
        try onFreshThread { loop in
            let chain = try Chain(loop, count: Self.count) { if $0 == 10 { loop.stop() } }
            loop.addIdleSource()
            loop.withEventBase { _ in }
            try plainThread { loop.add(chain.sources[0]) }.join()
            #expect(loop.run() == .stopped)
            #expect(chain.ended.list.count < 50)
        }
    }

    @Test func `a run nested in the last callout of a failing source fails others`() throws {
        try onFreshThread { loop in
            let (chain, other) = (try Chain(loop, count: 1), try Chain(loop, count: 3, mode: "nested"))
            loop.withEventBase { _ in }
            loop.withEventBase(forMode: "nested") { _ in }
            chain.sources[0].onInvalidation {
                _ = try? plainThread { loop.add(other.sources[0], forMode: "nested") }.join()
                #expect(loop.run(mode: "nested", until: .distantFuture) == .finished)
                #expect(other.ended.list == ["0", "1", "2"])
            }
            try plainThread { loop.add(chain.sources[0]) }.join()
            #expect(loop.run() == .finished)
        }
    }
}

// Not in Glibc's module.
@_silgen_name("backtrace") private func systemBacktrace(_ addresses: UnsafeMutablePointer<UnsafeMutableRawPointer?>, _ count: Int32)
    -> Int32

/// Sources whose descriptor was closed and belongs to another file now. When the loop begins to watch one of them, another thread adds the next.
private final class Chain: Sendable {
    private let links = Locked<[FailingSource]>([])
    private let depth = Locked<(lowest: Int, highest: Int)>((.max, 0))
    let ended = Trace()
    var sources: [FailingSource] { links.withLock { $0 } }
    /// How many frames of the stack lie between the shallowest and the deepest place where the loop looked at a source. Not counted in bytes: a
    /// sanitizer may move variables from the stack to the heap.
    var framesBetweenLooks: Int { depth.withLock { $0.highest - $0.lowest } }

    init(_ loop: RunLoop, count: Int, mode: RunLoop.Mode = .default, _ body: @escaping @Sendable (_ index: Int) -> Void = { _ in }) throws {
        let (old, new) = (Pipe(), Pipe())
        let identity = try FileIdentity.pollable(old.readEnd).identity
        for index in 0..<count {
            let source = FailingSource(new, identity) { [links, depth] in
                var addresses = [UnsafeMutableRawPointer?](repeating: nil, count: 8_192)
                let frames = Int(systemBacktrace(&addresses, Int32(addresses.count)))
                depth.withLock { $0 = (min($0.lowest, frames), max($0.highest, frames)) }
                body(index)
                let next = links.withLock { index + 1 < $0.count ? $0[index + 1] : nil }
                if let next { _ = try? plainThread { loop.add(next, forMode: mode) }.join() }
            }
            source.onInvalidation { [ended] in ended.add("\(index)") }
            links.withLock { $0.append(source) }
        }
    }

    // The sources refer to the list that they are in.
    deinit {
        let sources = links.withLock { links in
            defer { links = [] }
            return links
        }
        withExtendedLifetime(sources) {}
    }
}

private final class FailingSource: RunLoop.Source, @unchecked Sendable {
    // SAFETY: constants and a box.
    private let pipe: Pipe
    private let identity: FileIdentity
    private let isAsked = Box(false)
    private let onFirstLook: @Sendable () -> Void

    init(_ pipe: Pipe, _ identity: FileIdentity, _ onFirstLook: @escaping @Sendable () -> Void) {
        (self.pipe, self.identity, self.onFirstLook) = (pipe, identity, onFirstLook)
        super.init(kind: .watched, label: nil, site: CreationSite(#fileID, #line))
    }

    override var watch: Watch? {
        if !isAsked.value {
            isAsked.value = true
            onFirstLook()
        }
        return Watch(identity: identity, descriptor: pipe.readEnd)
    }
}
