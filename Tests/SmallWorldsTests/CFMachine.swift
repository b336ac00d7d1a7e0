// The reference, in the worlds that it can play: the real CFRunLoop of the toolchain's Foundation, in real time, in runs that poll.

internal import CoreFoundation
internal import EventLoopTestSupport
internal import RealCFRunLoop

#if canImport(Glibc)
internal import Glibc
#else
internal import Darwin
#endif

final class CFMachine: Machine {
    private enum Made {
        case source(CFRunLoopSource)
        case descriptor(CFRunLoopSource, EventLoopTestSupport.Pipe)
        case timer(CFRunLoopTimer)
        case observer(CFRunLoopObserver)
    }

    weak var player: Player?
    private let loop = CFRunLoopGetCurrent()!
    private var made: [String: Made] = [:]
    private var keepers: [CFRunLoopSource] = []
    var passes: Int { 0 }

    init(_ world: World) {
        if world.isKept { keepers = [.normal, .other].map { keeper(in: $0) } }
    }

    func observeAll() {
        for (mode, prefix) in [(Mode.normal, ""), (.other, "o:")] {
            let observer = CFRunLoopObserverCreateWithHandler(nil, 0x0FFF_FFFF, true, 1_000) { [unowned self] _, activity in
                call(prefix + Self.letters[activity.rawValue]!)  // it is one of the six
            }
            CFRunLoopAddObserver(loop, observer, name(mode))
        }
    }

    /// Breaks the reference cycles that the callbacks create.
    func forget() {
        for name in made.keys { invalidate(name) }
        made = [:]
        keepers = []
    }

    private static let letters: [UInt: String] = [1: "E", 2: "T", 4: "S", 32: "W", 64: "A", 128: "X"]
    private func call(_ word: String) { player!.callout(word) }  // the player lives until the thread has ended
    private func name(_ mode: Mode) -> CFString { realMode(mode == .normal ? "default" : "other") }

    private func keeper(in mode: Mode) -> CFRunLoopSource {
        var context = CFRunLoopSourceContext()
        // CF treats sources with equal contexts as one source (3.15).
        context.info = UnsafeMutableRawPointer(bitPattern: mode == .normal ? 1 : 2)
        let source = CFRunLoopSourceCreate(nil, 0, &context)!
        CFRunLoopAddSource(loop, source, name(mode))
        return source
    }

    // MARK: Items

    func make(_ item: Item) {
        let name = item.name
        switch item.kind {
        case .source: made[name] = .source(makeSource(name))
        case .level:
            let pipe = EventLoopTestSupport.Pipe()
            made[name] = .descriptor(realPortSource(descriptor: pipe.readEnd, owner: pipe) { [self] in call(name) }, pipe)
        case .timer, .ticker:
            let interval = item.kind == .timer ? 0 : 3_600.0
            made[name] = .timer(
                CFRunLoopTimerCreateWithHandler(nil, CFAbsoluteTimeGetCurrent() - 1, interval, 0, 0) { [unowned self] _ in call(name) })
            letTimersBeSeen()
        case .block: queueBlock(name)
        default:
            guard let letter = item.kind.activity else { preconditionFailure("CFRunLoop has no \(item.kind)") }
            let mask = Self.letters.first { $0.value == String(letter) }!.key  // it is one of the six
            made[name] = .observer(
                CFRunLoopObserverCreateWithHandler(nil, mask, item.kind.rawValue.hasPrefix("sees"), 0) { [unowned self] _, _ in
                    call("\(name):\(letter)")
                })
        }
    }

    /// CF arms a kernel timer with the past date; the kernel may take a moment to report it.
    private func letTimersBeSeen() { usleep(200) }

    /// The machine outlives the callbacks: `forget` invalidates every source.
    private func makeSource(_ name: String) -> CFRunLoopSource {
        func suffix(_ mode: CFString) -> String { CFEqual(mode, kCFRunLoopDefaultMode) ? "" : "@o" }
        return realSource(
            schedule: { [self] in call("+" + name + suffix($0)) }, cancel: { [self] in call("-" + name + suffix($0)) },
            perform: { [self] in call(name) })
    }

    func add(_ name: String, _ mode: Mode, secondLoop: Bool) {
        switch made[name]! {
        case .source(let source), .descriptor(let source, _): CFRunLoopAddSource(loop, source, self.name(mode))
        case .timer(let timer):
            CFRunLoopAddTimer(loop, timer, self.name(mode))
            letTimersBeSeen()
        case .observer(let observer): CFRunLoopAddObserver(loop, observer, self.name(mode))
        }
    }

    func remove(_ name: String, _ mode: Mode) {
        switch made[name]! {
        case .source(let source), .descriptor(let source, _): CFRunLoopRemoveSource(loop, source, self.name(mode))
        case .timer(let timer): CFRunLoopRemoveTimer(loop, timer, self.name(mode))
        case .observer(let observer): CFRunLoopRemoveObserver(loop, observer, self.name(mode))
        }
    }

    func invalidate(_ name: String) {
        if name == "keepers" { return keepers.forEach { CFRunLoopSourceInvalidate($0) } }
        switch made[name] {
        case .source(let source), .descriptor(let source, _): CFRunLoopSourceInvalidate(source)
        case .timer(let timer): CFRunLoopTimerInvalidate(timer)
        case .observer(let observer): CFRunLoopObserverInvalidate(observer)
        case nil: break
        }
    }

    func ready(_ name: String) {
        switch made[name]! {
        case .source(let source):
            CFRunLoopSourceSignal(source)
            usleep(20)  // signals are sorted by their time
        case .descriptor(_, let pipe): pipe.write("8 bytes.")
        default: preconditionFailure("\(name) cannot be made ready")
        }
    }

    func setDate(_ name: String, secondsFromNow seconds: Int) {
        guard case .timer(let timer) = made[name]! else { preconditionFailure("\(name) is no timer") }
        CFRunLoopTimerSetNextFireDate(timer, CFAbsoluteTimeGetCurrent() + (seconds == 0 ? -1 : Double(seconds) * 1_000))
        letTimersBeSeen()
    }

    func addToCommon(_ name: String) { preconditionFailure("CFRunLoop calls out with its lock held") }
    func removeFromCommon(_ name: String) { preconditionFailure("CFRunLoop calls out with its lock held") }
    func makeCommon() { preconditionFailure("CFRunLoop calls out with its lock held") }
    func mute(_ name: String, _ isMuted: Bool) { preconditionFailure("CFRunLoop has no events") }
    func rearm(_ name: String) { preconditionFailure("CFRunLoop has no triggers") }
    func fire(_ name: String) { preconditionFailure("CFRunLoop does not fire by hand") }
    func queuePerform(_ word: String) { preconditionFailure("CFRunLoop has no performs") }
    func onSecondLoop(_ body: () -> Void) { preconditionFailure("one loop") }

    func queueBlock(_ word: String) { CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) { [unowned self] in call(word) } }

    // MARK: The loop

    func run(_ mode: Mode, seconds: Int, returnsAfterSource: Bool) -> String {
        switch CFRunLoopRunInMode(name(mode), Double(seconds), returnsAfterSource) {
        case .finished: "finished"
        case .stopped: "stopped"
        case .timedOut: "timedOut"
        default: "handledSource"
        }
    }

    func stop(sticky: Bool) { CFRunLoopStop(loop) }
    func wakeUp() { CFRunLoopWakeUp(loop) }

    func state(_ name: String) -> String {
        guard let item = made[name] else { return "" }
        func text(_ isValid: Bool, _ isIn: (CFString) -> Bool) -> String {
            (isValid ? "v" : "-") + (isIn(self.name(.normal)) ? "n" : "") + (isIn(self.name(.other)) ? "o" : "")
        }
        return switch item {
        case .source(let source), .descriptor(let source, _):
            text(CFRunLoopSourceIsValid(source)) { CFRunLoopContainsSource(loop, source, $0) }
        case .timer(let timer): text(CFRunLoopTimerIsValid(timer)) { CFRunLoopContainsTimer(loop, timer, $0) }
        case .observer(let observer): text(CFRunLoopObserverIsValid(observer)) { CFRunLoopContainsObserver(loop, observer, $0) }
        }
    }
}
