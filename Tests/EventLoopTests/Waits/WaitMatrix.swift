// Combines everything that can be ready in a wait at the same time with everything that must end the wait.
//
// An *aim* must be reached within a bounded number of callbacks. The tests count the callbacks of C events, because libevent makes
// them inside its wait: each round of a wait that does not end adds one.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// One combination.
struct WaitCase: Sendable, CustomStringConvertible {
    typealias Trigger = RunLoop.DescriptorSource.Trigger

    /// A C library's event at one of libevent's priorities.
    enum Guest: String, CaseIterable { case none, always, once }

    /// An additional event in every pass.
    enum Extra: String, CaseIterable { case nothing, dueTimer, wakeUp }

    /// The effect that must happen despite the ready events.
    enum Aim: String, CaseIterable { case stop, limit, poll, wakeUp, urgentSource, timer, handledSource, perform, lowSource }

    /// The trigger of the ready descriptor at each priority: high, default, low.
    var descriptors: [Trigger?]
    var guests: [Guest]
    var extra: Extra
    var aim: Aim

    var description: String {
        let triggers = descriptors.map { $0.map { "\($0)" } ?? "-" }.joined(separator: ",")
        return "descriptors [\(triggers)] C events [\(guests.map(\.rawValue).joined(separator: ","))] \(extra.rawValue) -> \(aim.rawValue)"
    }

    /// If one C event has more callbacks than this between the cause and its effect, the wait does not end. The slowest effect takes six
    /// passes, in which a due timer and the sources of three priorities take turns, and a pass takes two rounds at most.
    static let bound = 16

    static let triggers: [Trigger?] = [nil, .level, .edge, .oneShot]

    /// All meaningful combinations. `isShort` omits combinations of different triggers, and extras without a C event that is always ready.
    static func all(short isShort: Bool) -> [WaitCase] {
        var cases: [WaitCase] = []
        for high in triggers {
            for middle in triggers {
                for low in triggers {
                    let used = Set([high, middle, low].compactMap { $0 })
                    if isShort && used.count > 1 { continue }
                    for first in Guest.allCases {
                        for second in Guest.allCases {
                            for third in Guest.allCases {
                                let guests = [first, second, third]
                                for extra in Extra.allCases where extra == .nothing || !isShort || guests.contains(.always) {
                                    for aim in Aim.allCases {
                                        let made = WaitCase(descriptors: [high, middle, low], guests: guests, extra: extra, aim: aim)
                                        if made.isMeaningful { cases.append(made) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        return cases
    }

    /// A ready event must set off the aim. A descriptor source that is always ready starves less urgent ones by design.
    private var isMeaningful: Bool {
        let isAnythingReady = descriptors.contains { $0 != nil } || guests.contains { $0 != .none }
        if !isAnythingReady { return false }
        return aim != .lowSource || !(descriptors[0] == .level || descriptors[1] == .level)
    }
}

/// Runs one combination on a loop of its own.
final class WaitRun: @unchecked Sendable {
    // SAFETY: accessed by the loop's thread only, between `init` and the end of `complaint()`.

    private let test: WaitCase
    private let loop: RunLoop
    private let pipes = (0..<8).map { _ in Pipe() }
    private var events: [ForeignEvent] = []
    private var calls = [0, 0, 0]
    private var isSetOff = false
    private var isThrough = false
    private var isRescued = false
    private var limit = RunLoop.Instant.distantFuture

    private init(_ test: WaitCase, _ loop: RunLoop) { (self.test, self.loop) = (test, loop) }

    /// The description of a failure, or nil.
    static func complaint(_ test: WaitCase) throws -> String? { try onFreshThread { loop in try WaitRun(test, loop).complaint() } }

    private func complaint() throws -> String? {
        let alive = loop.keepAlive()
        defer { alive.cancel() }
        addGuests()
        try addDescriptors()
        addExtra()
        try addAim()
        let result = run()
        for event in events { event.free() }
        events = []  // each of them retains this object
        if isRescued { return "\(test): the wait did not end; C events called \(calls)" }
        let expected: RunLoop.RunResult =
            switch test.aim {
            case .limit, .poll: .timedOut
            case .handledSource: .handledSource
            default: .stopped
            }
        return result == expected ? nil : "\(test): \(result), not \(expected)"
    }

    private func run() -> RunLoop.RunResult {
        switch test.aim {
        case .limit: loop.run(until: limit)
        case .poll: loop.run(for: .zero)
        case .handledSource: loop.run(for: patience, returnAfterSourceHandled: true)
        default: loop.run(for: patience)
        }
    }

    // MARK: Ready events

    private func addGuests() {
        for (priority, guest) in test.guests.enumerated() where guest != .none {
            let pipe = pipes[priority]
            pipe.write()
            let event = loop.withEventBase { base in
                ForeignEvent(base, pipe.readEnd, guest == .always ? EV_READ | EV_PERSIST : EV_READ, priority: Int32(priority)) { [self] _ in
                    noteCall(of: priority)
                }
            }
            event.add()
            events.append(event)
        }
    }

    private func addDescriptors() throws {
        for (index, trigger) in test.descriptors.enumerated() {
            guard let trigger else { continue }
            let priority: RunLoop.Priority = [.high, .default, .low][index]
            pipes[3 + index].write()
            loop.add(try readSource(pipes[3 + index], trigger: trigger, priority: priority) { [self] _ in setOff() })
        }
    }

    private func addExtra() {
        switch test.extra {
        case .nothing: break
        case .dueTimer:
            loop.add(RunLoop.Timer(fireAt: .distantPast, interval: .seconds(1)) { timer in timer.nextFire = .distantPast })
        case .wakeUp:
            let loop = loop
            loop.add(RunLoop.Observer(activities: .beforeTimers) { _, _ in loop.wakeUp() })
        }
    }

    private func noteCall(of priority: Int) {
        calls[priority] += 1
        if isSetOff && !isThrough && calls[priority] > WaitCase.bound { return rescue() }
        setOff()
    }

    /// Ends a wait that does not end.
    private func rescue() {
        if isRescued { return }
        isRescued = true
        for pipe in pipes { pipe.readAll() }
        loop.stop(sticky: true)
        loop.withEventBase { _ = event_base_loopbreak($0) }
    }

    // MARK: Aims

    private func addAim() throws {
        let loop = loop
        switch test.aim {
        case .limit: limit = .now + .microseconds(200)
        case .timer:
            limit = .now + .microseconds(200)
            loop.add(RunLoop.Timer(fireAt: limit) { [self] _ in reach() })
        case .wakeUp: loop.add(RunLoop.Observer(activities: .beforeTimers) { [self] _, _ in if isSetOff { reach() } })
        case .urgentSource: try addTarget(.high)
        case .lowSource: try addTarget(.low)
        case .stop, .poll, .handledSource, .perform: break
        }
        if test.aim == .poll || test.aim == .handledSource { isSetOff = true }
    }

    private func addTarget(_ priority: RunLoop.Priority) throws {
        loop.add(try readSource(pipes[6], priority: priority) { [self] _ in reach() })
    }

    /// Sets off the cause once, in the first callback of a C event or a descriptor.
    private func setOff() {
        if isSetOff { return }
        isSetOff = true
        calls = [0, 0, 0]
        switch test.aim {
        case .stop: loop.stop()
        case .limit, .timer: while RunLoop.Instant.now < limit + .milliseconds(1) {}  // ends: time passes
        case .wakeUp: loop.wakeUp()
        case .urgentSource, .lowSource: pipes[6].write()
        case .perform: loop.perform { [self] in reach() }
        case .poll, .handledSource: break
        }
    }

    /// Records the effect, and stops the run.
    private func reach() {
        isThrough = true
        loop.stop()
    }
}
