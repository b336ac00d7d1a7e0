internal import CPlatform
internal import EventLoopLibC

/// Reports each likely mistake once. All calls are on paths that only mistakes take. Thread-safe.
package enum Warnings {
    /// How many different warnings are reported.
    static let limit = 1_024
    /// How often a loop whose thread is stopping may refuse work. A correct program finds out by such a refusal.
    static let ordinaryRefusals: UInt32 = 16

    private enum Receiver: Sendable {
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
            case .nobody: break
            case .standardError: print(warning)
            case .handler(let handler): handler(warning)
            }
        }
    }

    private struct State: Sendable {
        /// Nil until the first warning, with which the environment is read.
        var receiver: Receiver?
        /// What was reported: hashes of kinds and places. At most `limit`, and the first that is not reported itself.
        var reported: Set<[Int]> = []
    }

    private static let state = LoopLock(State())

    static func setHandler(_ handler: (@Sendable (RunLoop.Warning) -> Void)?) {
        var old: Receiver? = handler.map { Receiver.handler($0) } ?? Receiver.nobody
        state.withLock { swap(&$0.receiver, &old) }
        withExtendedLifetime(old) {}  // released outside the lock: what the handler holds is the user's
    }

    /// Reports a mistake about an item or a closure, once for its creation site.
    @inline(never) package static func report(
        _ kind: RunLoop.Warning.Kind, label: String?, site: CreationSite, _ message: @autoclosure () -> String
    ) { /* DOES CALLOUT */
        // The user did not make this item, so the mistake is reported elsewhere, or is none.
        if site.isInLibrary { return }
        report(kind, place: [site.hashValue]) { RunLoop.Warning(kind: kind, message: message(), label: label, createdAt: site.description) }
    }

    /// Reports a mistake about a mode of a loop, once for both. Nil stands for all modes.
    @inline(never) package static func report(
        _ kind: RunLoop.Warning.Kind, loop: UInt64, mode: RunLoop.Mode?, _ message: @autoclosure () -> String
    ) { /* DOES CALLOUT */
        report(kind, place: [loop.hashValue, mode.hashValue]) { RunLoop.Warning(kind: kind, message: message()) }
    }

    /// Reports a failure of the program's code, each time.
    @inline(never) package static func reportEach(
        _ kind: RunLoop.Warning.Kind, label: String?, site: CreationSite, _ message: @autoclosure () -> String
    ) { /* DOES CALLOUT */
        report(kind, place: nil) { RunLoop.Warning(kind: kind, message: message(), label: label, createdAt: site.description) }
    }

    /// Without a place it is reported each time.
    private static func report(_ kind: RunLoop.Warning.Kind, place: [Int]?, _ make: () -> RunLoop.Warning) { /* DOES CALLOUT */
        guard cplatform_begin_warning() else { return }
        defer { cplatform_end_warning() }
        // Who receives it, and whether it is one too many. Nil if it was reported before, or nobody listens.
        let admitted = state.withLockIfOwn { state -> (Receiver, Bool)? in
            let receiver = state.receiver ?? .asBuilt
            state.receiver = receiver
            if case .nobody = receiver { return nil }
            guard let place else { return (receiver, false) }
            if state.reported.count > limit || !state.reported.insert([kind.hashValue] + place).inserted { return nil }
            return (receiver, state.reported.count > limit)
        }
        guard let admitted, let (receiver, isTooMany) = admitted else { return }
        let dropped = "\(limit) different warnings were reported; mend their causes, because no others will be reported"
        receiver(isTooMany ? RunLoop.Warning(kind: .furtherWarningsDropped, message: dropped) : make())
    }

    /// One line, written at once, so that lines of several threads do not mix.
    private static func print(_ warning: RunLoop.Warning) {
        var line = "EventLoop: warning: "
        for scalar in warning.description.unicodeScalars {
            // A name of the user's cannot end the line, or control a terminal.
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator: line += scalar.escaped(asASCII: true)
            default: line.unicodeScalars.append(scalar)
            }
        }
        writeToStandardError(line + "\n")
    }

    static func hold() { _ = state.lockValue() }
    static func release() { state.unlock() }
}

/// One system call. If the text cannot be written, there is nowhere else to report it.
func writeToStandardError(_ text: String) {
    var text = text
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
}
