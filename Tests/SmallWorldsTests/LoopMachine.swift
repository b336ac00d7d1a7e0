// The subject: a run loop in manual time, on a thread of its own.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

final class LoopMachine: Machine, @unchecked Sendable {
    // SAFETY: only the world's thread uses it, and the second loop's thread while the first one waits for it; the gates order the two.

    private enum Made {
        case source(RunLoop.CustomSource)
        case descriptor(RunLoop.DescriptorSource, Pipe)
        case port(RunLoop.Port)
        case signal(RunLoop.SignalSource)
        case listener(RunLoop.SocketSource, clients: Box<[Int32]>)
        case process(RunLoop.ProcessSource)
        case timer(RunLoop.Timer)
        case delayed(RunLoop.DelayedPerform)
        case observer(RunLoop.Observer)
        case keepAlive(RunLoop.KeepAlive)

        var asSource: RunLoop.Source? {
            switch self {
            case .source(let source): source
            case .descriptor(let source, _): source
            case .port(let source): source
            case .signal(let source): source
            case .listener(let source, _): source
            case .process(let source): source
            default: nil
            }
        }

        var object: AnyObject {
            switch self {
            case .timer(let timer): timer
            case .delayed(let token): token
            case .observer(let observer): observer
            case .keepAlive(let token): token
            default: asSource!  // all others are sources
            }
        }
    }

    weak var player: Player?
    private let loop: RunLoop
    private let clock: RunLoop.ManualClock
    private var second: SecondLoop?
    private var isOnSecondLoop = false
    private var made: [String: Made] = [:]
    private var keepers: [RunLoop.KeepAlive] = []
    private var signals: [Int32] = []
    private var children: [pid_t] = []
    private let other = RunLoop.Mode("other")

    /// Call this on the world's thread.
    init(_ world: World) {
        loop = RunLoop.current
        clock = RunLoop.ManualClock(start: .ms(100_000), autoAdvance: true)
        loop.use(clock)
        if world.usesSecondLoop { second = SecondLoop() }
        if world.isKept { keepers = [loop.keepAlive(), loop.keepAlive(forMode: other)] }
    }

    private var current: RunLoop { isOnSecondLoop ? second!.loop : loop }
    private var currentClock: RunLoop.ManualClock { isOnSecondLoop ? second!.clock : clock }

    /// The observers that write the letters, behind all other observers.
    func observeAll() {
        for (mode, prefix) in [(RunLoop.Mode.default, ""), (other, "o:")] {
            let observer = RunLoop.Observer(activities: .all, order: 1_000) { [self] _, activity in call(prefix + letter(of: activity)) }
            loop.add(observer, forMode: mode)
        }
    }

    private func call(_ word: String) { player!.callout(word) }  // the player lives until the thread has ended

    /// Releases the items, and returns those that must be nil after the threads have ended.
    func takeObjects() -> [(String, WeakObject)] {
        let all = made.map { ($0.key, WeakObject($0.value.object)) }
        for case .listener(_, let clients) in made.values { for client in clients.value { close(client) } }
        freeSignals.give(signals)
        // The children that no source has reaped.
        for child in children { waitpid(child, nil, 0) }
        made = [:]
        (keepers, second) = ([], nil)
        return all
    }

    // MARK: Items

    func make(_ item: Item) {
        let name = item.name
        switch item.kind {
        case .source:
            made[name] = .source(
                RunLoop.CustomSource(
                    schedule: { [self] in call("+" + word(name, $1)) }, cancel: { [self] in call("-" + word(name, $1)) },
                    perform: { [self] in call(name) }))
        case .level, .edge, .oneShot:
            let pipe = Pipe()
            let trigger: RunLoop.DescriptorSource.Trigger = item.kind == .level ? .level : item.kind == .edge ? .edge : .oneShot
            // A pipe can be watched.
            let source = try! RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger) { [self] _, _ in
                pipe.readAll()
                call(name)
            }
            made[name] = .descriptor(source, pipe)
        case .port: made[name] = .port(RunLoop.Port { [self] _, _ in call(name) })
        case .signal: makeSignal(name)
        case .listener: makeListener(name)
        case .process: makeProcess(name)
        case .timer: made[name] = .timer(RunLoop.Timer(fireAt: clock.now) { [self] _ in call(name) })
        case .ticker:
            made[name] = .timer(RunLoop.Timer(fireAt: clock.now, interval: .seconds(Model.interval)) { [self] _ in call(name) })
        case .onDemand: made[name] = .timer(.onDemand { [self] _ in call(name) })
        case .delayed: made[name] = .delayed(loop.perform(after: .zero) { [self] in call(name) })
        case .block: loop.performBlock { [self] in call(name) }
        case .perform: loop.perform(inModes: [.default]) { [self] in call(name) }
        case .keepAlive: made[name] = .keepAlive(loop.keepAlive())
        default:
            let letter = item.kind.activity!  // the others are observers
            made[name] = .observer(
                RunLoop.Observer(activities: activity(letter), repeats: item.kind.rawValue.hasPrefix("sees")) { [self] _, _ in
                    call("\(name):\(letter)")
                })
        }
        if let source = made[name]?.asSource { source.onInvalidation { [self] in call("~" + name) } }
    }

    private func makeSignal(_ name: String) {
        let signal = freeSignals.take()
        signals.append(signal)
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, signal)
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        made[name] = .signal(try! RunLoop.SignalSource(signal: signal) { [self] _, _ in call(name) })  // a real-time signal can be watched
    }

    private func makeListener(_ name: String) {
        let source = try! RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { [self] _, descriptor, _ in
            close(descriptor)
            call(name)
        }
        made[name] = .listener(source, clients: Box([]))
    }

    private func makeProcess(_ name: String) {
        var child = pid_t()
        let path = "/bin/true"
        let code = path.withCString { path in
            var arguments: [UnsafeMutablePointer<CChar>?] = [strdup(path), nil]
            defer { free(arguments[0]) }
            return posix_spawn(&child, path, nil, nil, &arguments, nil)
        }
        precondition(code == 0, "posix_spawn: errno \(code)")
        children.append(child)
        // The child has ended, and no source has reaped it.
        var info = siginfo_t()
        while waitid(P_PID, id_t(child), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR {}  // ends: the program does
        let source = try! RunLoop.ProcessSource(pid: child) { [self] _, _ in call(name) }  // a child of this process
        made[name] = .process(source)
    }

    private func word(_ name: String, _ mode: RunLoop.Mode) -> String { mode == .default ? name : "\(name)@o" }
    private func mode(_ mode: Mode) -> RunLoop.Mode { mode == .normal ? .default : other }

    func add(_ name: String, _ mode: Mode, secondLoop: Bool) {
        add(name, self.mode(mode), to: secondLoop ? second!.loop : loop)
    }

    private func add(_ name: String, _ mode: RunLoop.Mode, to loop: RunLoop) {
        switch made[name]! {
        case .timer(let timer): loop.add(timer, forMode: mode)
        case .observer(let observer): loop.add(observer, forMode: mode)
        case let item: loop.add(item.asSource!, forMode: mode)
        }
    }

    func remove(_ name: String, _ mode: Mode) { remove(name, self.mode(mode)) }

    private func remove(_ name: String, _ mode: RunLoop.Mode) {
        switch made[name]! {
        case .timer(let timer): loop.remove(timer, forMode: mode)
        case .observer(let observer): loop.remove(observer, forMode: mode)
        case let item: loop.remove(item.asSource!, forMode: mode)
        }
    }

    func addToCommon(_ name: String) { add(name, .common, to: loop) }
    func removeFromCommon(_ name: String) { remove(name, .common) }
    func makeCommon() { loop.addCommonMode(other) }

    func invalidate(_ name: String) {
        if name == "keepers" { return keepers.forEach { $0.cancel() } }
        switch made[name]! {
        case .timer(let timer): timer.invalidate()
        case .observer(let observer): observer.invalidate()
        case .delayed(let token): token.cancel()
        case .keepAlive(let token): token.cancel()
        case let item: item.asSource!.invalidate()
        }
    }

    func ready(_ name: String) {
        switch made[name]! {
        case .source(let source): source.signal()
        case .descriptor(_, let pipe): pipe.write()
        case .port(let port): try? port.send(RunLoop.PortMessage(id: 1))  // an invalid port refuses it
        case .signal(let source): if source.isValid { pthread_kill(pthread_self(), source.signal) }
        case .listener(let source, let clients): if let client = connect(to: source) { clients.value.append(client) }
        default: preconditionFailure("\(name) cannot be made ready")
        }
    }

    private func descriptor(_ name: String) -> RunLoop.DescriptorSource {
        guard case .descriptor(let source, _) = made[name]! else { preconditionFailure("\(name) has no descriptor") }
        return source
    }

    private func timer(_ name: String) -> RunLoop.Timer {
        guard case .timer(let timer) = made[name]! else { preconditionFailure("\(name) is no timer") }
        return timer
    }

    func mute(_ name: String, _ isMuted: Bool) { descriptor(name).events = isMuted ? [] : .read }
    func rearm(_ name: String) { descriptor(name).rearm() }
    func setDate(_ name: String, secondsFromNow seconds: Int) {
        timer(name).nextFire = currentClock.now.advanced(by: .seconds(seconds))
    }
    func fire(_ name: String) { timer(name).fire() }

    func state(_ name: String) -> String {
        guard let item = made[name] else { return "" }
        func text(_ isValid: Bool, _ isIn: (RunLoop, RunLoop.Mode) -> Bool) -> String {
            (isValid ? "v" : "-") + (isIn(loop, .default) ? "n" : "") + (isIn(loop, other) ? "o" : "")
                + (second.map { isIn($0.loop, .default) } ?? false ? "2" : "") + (isIn(loop, .common) ? "c" : "")
        }
        switch item {
        case .timer(let timer):
            let date = timer.nextFire
            return text(timer.isValid) { $0.contains(timer, forMode: $1) }
                + (timer.isValid ? date == .distantFuture ? "@-" : "@\(date.nanoseconds / 1_000_000_000)" : "")
        case .observer(let observer): return text(observer.isValid) { $0.contains(observer, forMode: $1) }
        case .delayed(let token): return "\(token.isValid)"
        case .keepAlive: return ""
        default:
            let source = item.asSource!  // the others are sources
            return text(source.isValid) { $0.contains(source, forMode: $1) }
        }
    }

    // MARK: The loop

    func queueBlock(_ word: String) { loop.performBlock { [self] in call(word) } }
    func queuePerform(_ word: String) { loop.perform(inModes: [.default]) { [self] in call(word) } }

    func run(_ mode: Mode, seconds: Int, returnsAfterSource: Bool) -> String {
        "\(current.run(mode: self.mode(mode), for: .seconds(seconds), returnAfterSourceHandled: returnsAfterSource))"
    }

    func stop(sticky: Bool) { current.stop(sticky: sticky) }
    func wakeUp() { current.wakeUp() }
    var passes: Int { Int(loop.statistics.passes + (second?.loop.statistics.passes ?? 0)) }

    func onSecondLoop(_ body: () -> Void) {
        isOnSecondLoop = true
        second!.perform(body)
        isOnSecondLoop = false
        second!.join()
    }
}

/// A second thread with a loop, which runs on request.
private final class SecondLoop: @unchecked Sendable {
    // SAFETY: `made` is set before the first gate opens; the first thread sets `work` while the second one waits at a gate.

    private var made: (loop: RunLoop, clock: RunLoop.ManualClock)?
    var loop: RunLoop { made!.loop }
    var clock: RunLoop.ManualClock { made!.clock }
    private let ready = Gate()
    private let done = Gate()
    private let go = Box<Gate>(Gate())
    private var work: (() -> Void)?
    private var thread: JoinableThread<Void>?

    init() {
        thread = joinableThread { [self] loop in
            let clock = RunLoop.ManualClock(start: .ms(100_000), autoAdvance: true)
            loop.use(clock)
            made = (loop, clock)
            ready.open()
            go.value.wait()
            work?()
            done.open()
        }
        ready.wait()
    }

    func perform(_ body: () -> Void) {
        withoutActuallyEscaping(body) { body in
            work = body
            go.value.open()
            done.wait()
            work = nil
        }
    }

    /// Waits for the thread's end, which makes callouts.
    func join() {
        if let thread { try! thread.join() }  // its body throws nothing
        thread = nil
    }
}

final class WeakObject: @unchecked Sendable {
    // SAFETY: written once; any thread may read a weak reference.
    private(set) weak var object: AnyObject?
    init(_ object: AnyObject) { self.object = object }
}

/// Signals that no other test uses. Concurrent worlds use different signals, because each source of a signal is notified of it.
private let freeSignals = FreeSignals()

private final class FreeSignals: Sendable {
    #if os(Linux)
    // Queued signals that `testSignal` of the signal tests does not use. Those tests run in the same process at the same time, and replace
    // the library's handlers with their own. If that happens to a signal eight times, the library refuses the signal.
    private let free = Locked(([0, 18, 19, 23, 27, 28, 29, 30] as [Int32]).map { __libc_current_sigrtmin() + $0 })
    #else
    private let free = Locked([SIGUSR2, SIGINFO, SIGIO, SIGTTOU, SIGTTIN, SIGVTALRM, SIGPROF, SIGXFSZ])
    #endif

    /// A worker takes two signals at most. If all are taken, waits until another worker returns one.
    func take() -> Int32 {
        var taken: Int32?
        do {
            try waitUntil("a free signal") {
                taken = free.withLock { $0.isEmpty ? nil : $0.removeFirst() }
                return taken != nil
            }
        } catch { Issue.record(error) }
        return taken!  // if it is nil, an issue is recorded and the test cannot continue
    }

    func give(_ signals: [Int32]) { free.withLock { $0 += signals } }
}

private func activity(_ letter: Character) -> RunLoop.Activity {
    ["E": .entry, "T": .beforeTimers, "S": .beforeSources, "W": .beforeWaiting, "A": .afterWaiting, "X": .exit][letter]!
}

private func connect(to source: RunLoop.SocketSource) -> Int32? {
    guard case .ipv4(_, let port)? = source.localAddress else { return nil }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = inet_addr("127.0.0.1")
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let code = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
    }
    if code == 0 { return descriptor }
    close(descriptor)
    return nil
}
