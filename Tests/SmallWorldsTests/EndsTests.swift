// Ends: every closure and every captured value may run the loop, add, remove, invalidate, stop, wait for a change of another thread, and end
// its thread. A world is a kind of item, a place (a handler, `cancel`, `onInvalidation`, the deinit of what a closure has captured), and one
// or two acts there. No model says what the trace is; these claims hold in every world:
//
// - The thread ends, and its loop with it. Nobody waits for ever.
// - No handler is called after the item's end, and none on two threads at once.
// - `onInvalidation` is called once if the source ended.
// - What the closures have captured is released once, except what the frames of an ended thread held.
// - Another loop calls an item that it has too, or that it is given afterwards.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Where an act happens.
enum EndPlace: String, CaseIterable, Sendable {
    case handler, nested, cancel, invalidation, release
}

/// What happens there.
enum EndAct: String, CaseIterable, Sendable {
    case nothing, run, runOther, add, remove, invalidate, invalidateOther, stop, perform, block
    /// Another thread changes something, and the place waits for it.
    case removedElsewhere, invalidatedElsewhere, releasedElsewhere, addedElsewhere, waitedForElsewhere
    /// The thread ends.
    case exit, cancel

    var endsThread: Bool { self == .exit || self == .cancel }
}

enum EndKind: String, CaseIterable, Sendable {
    case source, descriptor, edge, port, timer, ticker, observer, once, perform, awaited, block, delayed

    var isSource: Bool { [.source, .descriptor, .edge, .port].contains(self) }
    /// Whether the kind has such a place.
    func has(_ place: EndPlace) -> Bool {
        switch place {
        case .handler, .nested, .release: true
        case .cancel: self == .source
        case .invalidation: isSource
        }
    }
}

struct EndWorld: Hashable, Sendable, CustomStringConvertible {
    var kind: EndKind
    var place: EndPlace
    var acts: [EndAct]
    var description: String { "\(kind) \(place): \(acts.map(\.rawValue).joined(separator: ", "))" }

    static let singles = combinations.flatMap { kind, place in EndAct.allCases.map { EndWorld(kind: kind, place: place, acts: [$0]) } }
    static let pairs = combinations.flatMap { kind, place in
        EndAct.allCases.filter { !$0.endsThread }.flatMap { first in
            EndAct.allCases.map { EndWorld(kind: kind, place: place, acts: [first, $0]) }
        }
    }
    private static let combinations = EndKind.allCases.flatMap { kind in
        EndPlace.allCases.filter { kind.has($0) }.map { (kind, $0) }
    }
}

/// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
@Suite(.tags(.lifetimes), .enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer)) struct EndsTests {
    @Test func `every act from every place leaves nothing behind`() throws {
        let worlds = EndWorld.singles
        let chosen = playsAllWorlds ? worlds : stride(from: 0, to: worlds.count, by: 2).map { worlds[$0] }
        try play(chosen)
    }

    @Test(.enabled(if: playsAllWorlds)) func `every two acts from every place leave nothing behind`() throws { try play(EndWorld.pairs) }

    private func play(_ worlds: [EndWorld]) throws {
        var failures: [String] = []
        for world in worlds {
            let stage = EndStage(world)
            do {
                if let complaint = try stage.play() { failures.append("\(world): \(complaint)") }
            } catch { failures.append("\(error)") }
            if failures.count >= 10 { break }
        }
        #expect(failures.isEmpty, "\(failures.joined(separator: "\n"))")
    }
}

/// Says when it is released.
private final class Captured: Sendable {
    private let onRelease: @Sendable () -> Void
    init(_ onRelease: @escaping @Sendable () -> Void) { self.onRelease = onRelease }
    deinit { onRelease() }
}

/// One world: a thread with a loop on which the item is, and another loop that gets the item as well, if it can.
private final class EndStage: Sendable {
    private enum Made: Sendable {
        case source(RunLoop.Source)
        case timer(RunLoop.Timer)
        case observer(RunLoop.Observer)
    }

    private let world: EndWorld
    private let made = Box<Made?>(nil)
    private let complaint = Box<String?>(nil)
    /// Calls of the handler in progress, and all calls.
    private let inHandler = Box(0)
    private let handled = Box(0)
    private let ends = Box(0)
    private let released = Box(0)
    private let hasActed = Box(false)
    private let hasWaited = Box(false)
    private let loop = Box<RunLoop?>(nil)
    private let pipe = Pipe()

    init(_ world: EndWorld) { self.world = world }

    // MARK: The script

    func play() throws -> String? {
        let thread = try RunLoopThread(name: "ends")
        loop.value = thread.runLoop
        thread.runLoop.perform { [self] in prepare() }
        try waitUntil("\(world): the act") { [self] in hasActed.value || !thread.runLoop.isValid }
        // No-op if the act has ended the thread. Where it is released, a closure may end the thread that has waited for it.
        thread.stop()
        guard thread.join(timeout: patience) else { return "join does not return" }
        if thread.runLoop.isValid { return "the loop is valid after the thread's end" }
        if !hasActed.value { return "the place was not reached" }
        inHandler.value = 0
        try finish(isEnding: world.acts.contains(where: \.endsThread))
        return complaint.value
    }

    private func finish(isEnding: Bool) throws {
        switch made.value {
        case .source(let source)?:
            if source.isValid {
                // Another loop calls it.
                let other = RunningLoop()
                other.loop.add(source)
                let before = handled.value
                makeReady(other.loop)
                try waitUntil("\(world): another loop calls the source") { [self] in handled.value > before }
                source.invalidate()
                try other.end()
            }
            try waitUntil("\(world): the source ends") { [self] in ends.value > 0 }
            if ends.value != 1 { complaint.value = "onInvalidation was called \(ends.value) times" }
        case .timer(let timer)?:
            if timer.isValid {
                let other = RunningLoop()
                if !other.loop.add(timer) { complaint.value = "the timer cannot join another loop" }
                timer.invalidate()
                try other.end()
            }
        case .observer(let observer)?:
            if observer.isValid {
                let other = RunningLoop()
                if !other.loop.add(observer) { complaint.value = "the observer cannot join another loop" }
                observer.invalidate()
                try other.end()
            }
        case nil: break
        }
        made.value = nil
        // The thread that waits may release the closure, and end there.
        if world.kind == .awaited && world.place != .release { try waitUntil("\(world): the wait ends") { [self] in hasWaited.value } }
        // The frames of a thread that ended held the closure.
        if !isEnding { try waitUntil("\(world): what was captured is released") { [self] in released.value == 1 } }
        if released.value > 1 { complaint.value = "released twice" }
    }

    // MARK: The item

    private func prepare() {
        let loop = RunLoop.current
        let captured = Captured { [self] in
            released.increment()
            if world.place == .release { act() }
        }
        let handler: @Sendable () -> Void = { [self] in
            withExtendedLifetime(captured) { handle() }
        }
        switch world.kind {
        case .source:
            keep(.source(RunLoop.CustomSource(cancel: { [self] _, _ in if world.place == .cancel { act() } }, perform: handler)))
        case .descriptor, .edge:
            let trigger: RunLoop.DescriptorSource.Trigger = world.kind == .edge ? .edge : .level
            let pipe = pipe
            // A pipe can be watched.
            let source = try! RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger) { _, _ in
                pipe.readAll()
                handler()
            }
            keep(.source(source))
        case .port: keep(.source(RunLoop.Port { _, _ in handler() }))
        case .timer: keep(.timer(RunLoop.Timer(fireAt: .distantPast) { _ in handler() }))
        case .ticker: keep(.timer(RunLoop.Timer(fireAt: .distantPast, interval: .seconds(3_600)) { _ in handler() }))
        case .observer: keep(.observer(RunLoop.Observer(activities: .beforeSources) { _, _ in handler() }))
        case .once: keep(.observer(RunLoop.Observer(activities: .beforeSources, repeats: false) { _, _ in handler() }))
        case .perform: loop.perform { handler() }
        case .awaited: break
        case .block: loop.performBlock { handler() }
        case .delayed: loop.perform(after: .zero) { handler() }
        }
        if world.kind == .awaited { performElsewhere(handler) }
        switch made.value {
        case .source(let source)?:
            source.onInvalidation { [self] in
                ends.increment()
                if world.place == .invalidation { act() }
            }
            loop.add(source)
            makeReady(loop)
        case .timer(let timer)?: loop.add(timer)
        case .observer(let observer)?: loop.add(observer)
        case nil: break
        }
        loop.wakeUp()
    }

    private func keep(_ item: Made) { made.value = item }

    /// A thread waits for the closure.
    private func performElsewhere(_ handler: @escaping @Sendable () -> Void) {
        let loop = loop.value!
        plainThread { [self] in
            try? loop.performAndWait { handler() }
            hasWaited.value = true
        }.detach()
    }

    private func makeReady(_ loop: RunLoop) {
        guard case .source(let source)? = made.value else { return }
        switch source {
        case let source as RunLoop.CustomSource:
            source.signal()
            loop.wakeUp()
        case let port as RunLoop.Port: try? port.send(RunLoop.PortMessage(id: 1))
        default: pipe.write()
        }
    }

    private func handle() {
        if inHandler.increment() > 1 && world.acts.allSatisfy({ $0 != .run && $0 != .runOther }) && world.place != .nested {
            complaint.value = "the handler runs twice at once"
        }
        handled.increment()
        defer { inHandler.change { $0 -= 1 } }
        if hasActed.value || !loop.value!.isCurrent { return }
        switch world.place {
        case .handler: act()
        case .nested:
            RunLoop.current.perform(inModes: ["inner"]) { [self] in act() }
            _ = RunLoop.current.run(mode: "inner", for: .zero)
        case .cancel, .invalidation: invalidate()
        case .release:
            // The closure is released when the handler returns.
            invalidate()
            made.value = nil
        }
    }

    private func invalidate() {
        switch made.value {
        case .source(let source)?: source.invalidate()
        case .timer(let timer)?: timer.invalidate()
        case .observer(let observer)?: observer.invalidate()
        case nil: break
        }
    }

    // MARK: Acts

    private func act() {
        guard !hasActed.value else { return }
        for (number, act) in world.acts.enumerated() {
            if number == world.acts.count - 1 { hasActed.value = true }
            perform(act)
        }
    }

    private func perform(_ act: EndAct) {
        let loop = RunLoop.current
        switch act {
        case .nothing: break
        case .run: _ = loop.run(for: .zero)
        case .runOther: _ = loop.run(mode: "other", for: .zero)
        case .add: addAgain(to: loop)
        case .remove: remove(from: loop)
        case .invalidate: invalidate()
        case .invalidateOther:
            let source = RunLoop.CustomSource {}
            loop.add(source)
            source.invalidate()
        case .stop: loop.stop()
        case .perform: loop.perform {}
        case .block: loop.performBlock {}
        case .removedElsewhere: elsewhere { [self] in remove(from: loop) }
        case .invalidatedElsewhere: elsewhere { [self] in invalidate() }
        case .releasedElsewhere:
            elsewhere { [self] in
                let timer = RunLoop.Timer(every: .seconds(1)) { [pipe] _ in withExtendedLifetime(pipe) {} }
                loop.add(timer)
                loop.remove(timer)
                remove(from: loop)
            }
        case .addedElsewhere: elsewhere { [self] in addAgain(to: loop) }
        case .waitedForElsewhere:
            // Nobody performs it before this returns.
            plainThread { try? loop.performAndWait(timeout: .zero) {} }.detach()
        case .exit: pthread_exit(nil)
        case .cancel:
            pthread_cancel(pthread_self())
            pthread_testcancel()
        }
    }

    private func elsewhere(_ body: @escaping @Sendable () -> Void) {
        do { try plainThread { body() }.join() } catch { complaint.value = "\(error)" }
    }

    private func addAgain(to loop: RunLoop) {
        switch made.value {
        case .source(let source)?: loop.add(source)
        case .timer(let timer)?: loop.add(timer)
        case .observer(let observer)?: loop.add(observer)
        case nil: loop.add(RunLoop.CustomSource {})
        }
    }

    private func remove(from loop: RunLoop) {
        switch made.value {
        case .source(let source)?: loop.remove(source)
        case .timer(let timer)?: loop.remove(timer)
        case .observer(let observer)?: loop.remove(observer)
        case nil: break
        }
    }
}
