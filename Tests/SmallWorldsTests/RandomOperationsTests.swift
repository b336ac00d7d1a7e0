// Random operations on every kind of item, from every callout and from a second thread, until a seed's supply is used up. Nothing is compared:
// the process must not trap, every thread ends, every source that was made ends once, and everything that a closure has captured is
// released. Under AddressSanitizer the leak detector judges the rest when the process leaves `main`.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.lifetimes)) struct RandomOperationsTests {
    @Test func `random operations from everywhere leave nothing behind`() throws {
        for seed in 0..<UInt64(playsAllWorlds ? 5_000 : 60) {
            let play = RandomPlay(seed: seed)
            try play.run()
            let complaint = try play.complaint()
            #expect(complaint == nil, "seed \(seed): \(complaint ?? "")")
            if complaint != nil { break }
        }
    }
}

/// What one seed does, and what is left of it.
private final class RandomPlay: Sendable {
    private struct State {
        var random: SplitMix64
        /// How many operations are left.
        var supply = 150
        var depth = 0
        var items: [Item] = []
    }

    private enum Item: Sendable {
        case source(RunLoop.Source)
        case timer(RunLoop.Timer)
        case observer(RunLoop.Observer)
        case token(RunLoop.DelayedPerform)
        case alive(RunLoop.KeepAlive)
    }

    private let state: Locked<State>
    private let made = Box(0)
    private let released = Box(0)
    private let sources = Box(0)
    private let ended = Box(0)
    private let loops = Box<[RunLoop]>([])

    init(seed: UInt64) { state = Locked(State(random: SplitMix64(seed: seed))) }

    func run() throws {
        let threads = try ["a", "b"].map { try RunLoopThread(name: $0) }
        loops.value = threads.map(\.runLoop)
        for thread in threads { thread.runLoop.perform { [self] in act(6) } }
        try waitUntil("the supply is used up") { [self] in
            // Whatever is queued or due gets its turn; a play that stands still is started again.
            for thread in threads { thread.runLoop.perform { [self] in act(2) } }
            return state.withLock { $0.supply <= 0 }
        }
        for item in state.withLock({ $0.items }) { invalidate(item) }
        for thread in threads { thread.stop() }
        for thread in threads where !thread.join(timeout: patience) { throw PlayError(description: "join does not return") }
        let items = state.withLock { state in
            defer { state.items = [] }
            return state.items
        }
        withExtendedLifetime(items) {}
    }

    private struct PlayError: Error, CustomStringConvertible { let description: String }

    /// After everything was dropped.
    func complaint() throws -> String? {
        loops.value = []
        if ended.value != sources.value { return "\(sources.value) sources ended \(ended.value) times" }
        try waitUntil("everything that was captured is released") { [self] in made.value == released.value }
        return nil
    }

    // MARK: Operations

    private func pick(_ count: Int) -> Int { state.withLock { .random(in: 0..<count, using: &$0.random) } }

    /// Called from every closure.
    private func act(_ most: Int) {
        for _ in 0..<(1 + pick(most)) {
            let isLeft = state.withLock { state in
                state.supply -= 1
                return state.supply > 0
            }
            if !isLeft { return }
            actOnce()
        }
    }

    private func actOnce() {
        let loop = loops.value[pick(2)]
        let mode: RunLoop.Mode = [.default, "other", .common][pick(3)]
        switch pick(16) {
        case 0, 1, 2: add(make(), to: loop, mode)
        case 3: some { add($0, to: loop, mode) }
        case 4, 5: some { remove($0, from: loop, mode) }
        case 6: some { invalidate($0) }
        case 7: release()
        case 8: some { makeReady($0, loop) }
        case 9: loop.perform(inModes: [mode]) { [self, captured] in withExtendedLifetime(captured) { act(2) } }
        case 10: loop.performBlock(inModes: [mode]) { [self, captured] in withExtendedLifetime(captured) { act(2) } }
        case 11: keep(.token(loop.perform(after: .zero) { [self, captured] in withExtendedLifetime(captured) { act(2) } }))
        case 12: runNested()
        case 13: loop.stop(sticky: pick(2) == 0)
        case 14: elsewhere()
        default: keep(.alive(loop.keepAlive(forMode: mode)))
        }
    }

    private var captured: Canary {
        made.increment()
        return Canary { [released] in released.increment() }
    }

    private func keep(_ item: Item) { state.withLock { $0.items.append(item) } }

    private func some(_ body: (Item) -> Void) {
        let item = state.withLock { state in state.items.randomElement(using: &state.random) }
        if let item { body(item) }
    }

    /// Drops a reference of the test's own: the loop's may be the last.
    private func release() {
        let item = state.withLock { state -> Item? in
            guard let place = state.items.indices.randomElement(using: &state.random) else { return nil }
            // A source that is valid ends by its last release, a keep-alive likewise.
            return state.items.remove(at: place)
        }
        withExtendedLifetime(item) {}
    }

    private func runNested() {
        let isAllowed = state.withLock { state in
            defer { state.depth += 1 }
            return state.depth < 6
        }
        defer { state.withLock { $0.depth -= 1 } }
        if isAllowed {
            _ = RunLoop.current.run(mode: pick(2) == 0 ? .default : "other", for: .zero, returnAfterSourceHandled: pick(2) == 0)
        }
    }

    /// An operation on a thread that has no loop.
    private func elsewhere() {
        let kind = pick(3)
        let loop = loops.value[pick(2)]
        _ = try? plainThread { [self] in
            switch kind {
            case 0: some { remove($0, from: loop, .default) }
            case 1: some { invalidate($0) }
            default: release()
            }
        }.join()
    }

    // MARK: Items

    private func make() -> Item {
        let captured = captured
        let handler: @Sendable () -> Void = { [self] in withExtendedLifetime(captured) { act(2) } }
        let item: Item
        switch pick(7) {
        case 0:
            item = .source(
                RunLoop.CustomSource(
                    order: pick(3), schedule: { [self] _, _ in act(1) }, cancel: { [self] _, _ in act(1) }, perform: handler))
        case 1, 2:
            let pipe = Pipe()
            pipe.write()
            let trigger: RunLoop.DescriptorSource.Trigger = [.level, .edge, .oneShot][pick(3)]
            // A pipe can be watched.
            let source = try! RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger) { _, _ in
                pipe.readAll()
                handler()
            }
            // Open until the source has ended.
            source.onInvalidation { withExtendedLifetime(pipe) {} }
            item = .source(source)
        case 3: item = .source(RunLoop.Port(capacity: 4) { _, _ in handler() })
        case 4: item = .timer(RunLoop.Timer(fireAt: .distantPast) { _ in handler() })
        case 5: item = .timer(RunLoop.Timer(every: .milliseconds(1)) { _ in handler() })
        default: item = .observer(RunLoop.Observer(activities: .beforeSources, repeats: pick(2) == 0) { _, _ in handler() })
        }
        if case .source(let source) = item {
            sources.increment()
            source.onInvalidation { [self] in
                ended.increment()
                act(1)
            }
        }
        keep(item)
        return item
    }

    private func add(_ item: Item, to loop: RunLoop, _ mode: RunLoop.Mode) {
        switch item {
        case .source(let source): loop.add(source, forMode: mode)
        case .timer(let timer): loop.add(timer, forMode: mode)
        case .observer(let observer): loop.add(observer, forMode: mode)
        case .token, .alive: break
        }
    }

    private func remove(_ item: Item, from loop: RunLoop, _ mode: RunLoop.Mode) {
        switch item {
        case .source(let source): loop.remove(source, forMode: mode)
        case .timer(let timer): loop.remove(timer, forMode: mode)
        case .observer(let observer): loop.remove(observer, forMode: mode)
        case .token, .alive: break
        }
    }

    private func invalidate(_ item: Item) {
        switch item {
        case .source(let source): source.invalidate()
        case .timer(let timer): timer.invalidate()
        case .observer(let observer): observer.invalidate()
        case .token(let token): token.cancel()
        case .alive(let alive): alive.cancel()
        }
    }

    private func makeReady(_ item: Item, _ loop: RunLoop) {
        switch item {
        case .source(let source as RunLoop.CustomSource):
            source.signal()
            loop.wakeUp()
        case .source(let port as RunLoop.Port): _ = try? port.send(RunLoop.PortMessage(id: 1))
        case .source(let source as RunLoop.DescriptorSource): source.rearm()
        case .timer(let timer): timer.nextFire = .distantPast
        default: break
        }
    }
}
