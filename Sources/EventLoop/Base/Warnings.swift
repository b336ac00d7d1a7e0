// Which warnings are reported, and to whom.

internal import CPlatform
internal import EventLoopLibC

/// Reports each likely mistake once. All calls are on paths that only mistakes take. Thread-safe.
enum Warnings {
    /// How many different warnings are reported.
    static let limit = 1_024
    /// How often a loop whose thread is stopping may refuse work. A correct program finds out by such a refusal.
    static let ordinaryRefusals = 16

    private enum Receiver: Sendable {
        /// Not decided yet: the environment is read with the first warning.
        case initial
        case nobody
        case standardError
        case handler(@Sendable (RunLoop.Warning) -> Void)

        static var asBuilt: Receiver {
            if let value = getenv("EVENTLOOP_WARNINGS") { return value[0] == CChar(UInt8(ascii: "0")) ? .nobody : .standardError }
            #if DEBUG
            return .standardError
            #else
            return .nobody
            #endif
        }

        func callAsFunction(_ warning: RunLoop.Warning) { /* DOES CALLOUT */
            switch self {
            case .initial, .nobody: break
            case .standardError: print(warning)
            case .handler(let handler): handler(warning)
            }
        }
    }

    private struct State: Sendable {
        var receiver = Receiver.initial
        /// What was reported: hashes of kinds and places. At most `limit`.
        var reported: Set<Int> = []
        var isFull = false
        /// By loop, how often it has refused work. At most `limit` loops.
        var refusals: [UInt64: Int] = [:]
    }

    private static let state = LoopLock(State())

    static func setHandler(_ handler: (@Sendable (RunLoop.Warning) -> Void)?) {
        let old = state.withLock { state in
            defer { state.receiver = handler.map { .handler($0) } ?? .nobody }
            return state.receiver
        }
        // Released outside the lock: what the handler holds is the user's.
        withExtendedLifetime(old) {}
    }

    /// Reports a mistake about an item or a closure, once for its creation site.
    @inline(never)
    static func report(
        _ kind: RunLoop.Warning.Kind, label: String?, site: CreationSite, _ message: @autoclosure () -> String
    ) { /* DOES CALLOUT */
        // The user did not make this item, so the mistake is reported elsewhere, or is none.
        if site.isInLibrary { return }
        report(kind, site: site.hashValue) {
            RunLoop.Warning(kind: kind, message: message(), label: label, createdAt: site.description)
        }
    }

    /// Reports a mistake about a mode of a loop, once for both. Nil stands for all modes.
    @inline(never)
    static func report(
        _ kind: RunLoop.Warning.Kind, loop: UInt64, mode: RunLoop.Mode?, _ message: @autoclosure () -> String
    ) { /* DOES CALLOUT */
        var site = Hasher()
        site.combine(loop)
        site.combine(mode)
        report(kind, site: site.finalize()) { RunLoop.Warning(kind: kind, message: message()) }
    }

    /// Reports a failure of the program's code, each time.
    @inline(never)
    static func reportEach(
        _ kind: RunLoop.Warning.Kind, label: String?, site: CreationSite, _ message: @autoclosure () -> String
    ) { /* DOES CALLOUT */
        guard cplatform_begin_warning() else { return }
        defer { cplatform_end_warning() }
        let receiver = state.withLockIfOwn { state in
            if case .initial = state.receiver { state.receiver = .asBuilt }
            return state.receiver
        }
        receiver?(RunLoop.Warning(kind: kind, message: message(), label: label, createdAt: site.description))
    }

    private static func report(_ kind: RunLoop.Warning.Kind, site: Int, _ make: () -> RunLoop.Warning) { /* DOES CALLOUT */
        guard cplatform_begin_warning() else { return }
        defer { cplatform_end_warning() }
        var key = Hasher()
        key.combine(kind)
        key.combine(site)
        switch admit(key.finalize()) {
        case .known: break
        case .new(let receiver): receiver(make())
        case .tooMany(let receiver):
            receiver(
                RunLoop.Warning(
                    kind: .furtherWarningsDropped,
                    message: "\(limit) different warnings were reported; mend their causes, because no others will be reported"))
        }
    }

    private enum Admission: Sendable {
        /// It was reported before, or nobody listens.
        case known
        case new(Receiver)
        case tooMany(Receiver)
    }

    private static func admit(_ key: Int) -> Admission {
        state.withLockIfOwn { state -> Admission in
            if case .initial = state.receiver { state.receiver = .asBuilt }
            if case .nobody = state.receiver { return .known }
            if state.isFull || state.reported.contains(key) { return .known }
            if state.reported.count == limit {
                state.isFull = true
                return .tooMany(state.receiver)
            }
            state.reported.insert(key)
            return .new(state.receiver)
        } ?? .known
    }

    /// Counts a refusal of work by a loop. Returns how often this loop has refused work so far, as far as it was counted.
    static func countRefusal(by loop: UInt64) -> Int {
        state.withLockIfOwn { state in
            if case .nobody = state.receiver { return 0 }
            if state.refusals.count == limit && state.refusals[loop] == nil { return 0 }
            state.refusals[loop, default: 0] += 1
            return state.refusals[loop]!  // it was just set
        } ?? 0
    }

    /// One line and one system call, so that lines of several threads do not mix.
    private static func print(_ warning: RunLoop.Warning) {
        var line = "EventLoop: warning: "
        for scalar in warning.description.unicodeScalars {
            // A name of the user's cannot end the line, or control a terminal.
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator: line += scalar.escaped(asASCII: true)
            default: line.unicodeScalars.append(scalar)
            }
        }
        line += "\n"
        // If the line cannot be written, there is nowhere else to report it.
        line.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    static func hold() { _ = state.lockValue() }

    static func release() { state.unlock() }
}
