// Every place of a run from which a loop calls out, for tests that perform the same action from each place.

public import EventLoop
public import Testing

/// Every place of a run from which a loop calls out, except exit.
public enum Callout: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case entry, beforeTimers, beforeSources, block, source, perform, port, beforeWaiting, afterWaiting, timer

    public static let observers: [Callout] = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting]
    public var testDescription: String { rawValue }

    /// Arranges one call of `body` at this place of the next run of `loop` in `mode`. A callout that no observer reports adds its name to
    /// `trace`. `leaving` removes the source or the timer from the loop before `body`.
    public func arrange(
        _ loop: RunLoop, _ clock: RunLoop.ManualClock, _ trace: Trace, mode: RunLoop.Mode = .default, leaving: Bool = false,
        body: @escaping @Sendable () -> Void
    ) throws {
        let name = rawValue
        let once = Once()
        let act: @Sendable () -> Void = {
            trace.add(name)
            if once.isFirst() { body() }
        }
        switch self {
        case .entry: loop.atFirst(.entry, forMode: mode, do: body)
        case .beforeTimers: loop.atFirst(.beforeTimers, forMode: mode, do: body)
        case .beforeSources: loop.atFirst(.beforeSources, forMode: mode, do: body)
        case .beforeWaiting: loop.atFirst(.beforeWaiting, forMode: mode, do: body)
        case .afterWaiting:
            loop.atFirst(.beforeWaiting, forMode: mode) { loop.wakeUp() }
            loop.atFirst(.afterWaiting, forMode: mode, do: body)
        case .block: loop.performBlock(inModes: [mode], act)
        case .perform: loop.perform(inModes: [mode], act)
        case .source:
            loop.addSource(forMode: mode, signaled: true) { source in
                if leaving { source.invalidate() }
                act()
            }
        case .port:
            try loop.addReadyPipe(forMode: mode) { source in
                if leaving { source.invalidate() }
                act()
            }
        case .timer: loop.addTimer(forMode: mode, at: clock.now) { _ in act() }
        }
    }

    /// The trace of a run that ends with the pass in which this callout acted, with all notifications of that pass.
    public var traceOfOnePass: String {
        switch self {
        case .entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting: "E T S W A X"
        case .block: "E T S block W A X"
        case .source, .perform, .port: "E T S \(rawValue) X"
        case .timer: "E T S W A timer X"
        }
    }
}
