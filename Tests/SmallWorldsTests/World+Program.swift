// A world as a program, so that a failing world can be pasted into a test and stepped through.

extension World {
    /// Statements for a function that imports EventLoop and EventLoopTestSupport.
    var program: String {
        var lines = [
            "let clock = RunLoop.ManualClock(start: .ms(100_000), autoAdvance: true)", "let trace = Trace()",
            "let calls = Box([String: Int]())",
        ]
        if usesSecondLoop { lines.append("let second = RunningLoop()  // another thread's loop") }
        lines += items.filter { $0.kind.type != nil }.map { "let \($0.name) = Box<\($0.kind.type!)?>(nil)" }
        lines += items.filter(\.kind.isDescriptor).map { "let \($0.name)Pipe = Pipe()" }
        lines.append("try onFreshThread { loop in")
        lines.append("    loop.use(clock)")
        if isObserved { lines.append("    for mode in [RunLoop.Mode.default, \"other\"] { trace.observe(loop, in: mode, order: 1_000) }") }
        if isKept { lines.append("    let keepers = [loop.keepAlive(), loop.keepAlive(forMode: \"other\")]") }
        lines += [
            "    @Sendable func call(_ word: String) {", "        trace.add(word)",
            "        switch (word, calls.change { $0[word, default: 0] += 1; return $0[word]! }) {",
        ]
        for hook in hooks {
            lines.append("        case (\"\(hook.word)\", \(hook.call)):")
            lines += hook.actions.flatMap { statements($0) }.map { "            " + $0 }
        }
        lines += ["        default: break", "        }", "    }"]
        lines += items.map { "    " + making($0) }
        lines += items.filter(\.kind.isMember).map { "    loop.add(\($0.name).value!\($0.isInOther ? ", forMode: \"other\"" : ""))" }
        lines += items.filter(\.kind.isSource).flatMap { statements(.ready($0.name)) }.map { "    " + $0 }
        lines += items.filter { $0.kind == .onDemand }.map { "    \($0.name).value!.nextFire = clock.now" }
        let after = returnsAfterSource ? ", returnAfterSourceHandled: true" : ""
        lines += ["default", "default", "other", "default"].map { mode in
            "    trace.add(\"=\\(loop.run(mode: \(mode == "default" ? ".default" : "\"other\""), for: .seconds(10)\(after)))\")"
                + (returnsAfterSource ? "  // again, while it says handledSource" : "")
        }
        return (lines + ["}", "print(trace)"]).joined(separator: "\n")
    }

    private func making(_ item: Item) -> String {
        let name = item.name
        let perform = "{ call(\"\(name)\") }"
        return switch item.kind {
        case .source:
            "\(name).value = RunLoop.CustomSource(schedule: { call(\"+\(name)\" + ($1 == .default ? \"\" : \"@o\")) }, "
                + "cancel: { call(\"-\(name)\" + ($1 == .default ? \"\" : \"@o\")) }) \(perform)"
        case .level, .edge, .oneShot:
            "\(name).value = try RunLoop.DescriptorSource(descriptor: \(name)Pipe.readEnd, events: .read, trigger: .\(item.kind)) { _, _ in "
                + "\(name)Pipe.readAll(); call(\"\(name)\") }"
        case .port: "\(name).value = RunLoop.Port { _, _ in call(\"\(name)\") }"
        case .signal: "\(name).value = try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in call(\"\(name)\") }"
        case .listener:
            "\(name).value = try RunLoop.SocketSource(listeningOn: .ipv4(host: \"127.0.0.1\", port: 0)) { close($1); _ = $2; call(\"\(name)\") }"
        case .process: "\(name).value = try RunLoop.ProcessSource(pid: childThatHasEnded) { _, _ in call(\"\(name)\") }"
        case .timer: "\(name).value = RunLoop.Timer(fireAt: clock.now) { _ in call(\"\(name)\") }"
        case .ticker: "\(name).value = RunLoop.Timer(fireAt: clock.now, interval: .seconds(4)) { _ in call(\"\(name)\") }"
        case .onDemand: "\(name).value = .onDemand { _ in call(\"\(name)\") }"
        case .delayed: "\(name).value = loop.perform(after: .zero) \(perform)"
        case .block: "loop.performBlock \(perform)"
        case .perform: "loop.perform(inModes: [.default]) \(perform)"
        case .keepAlive: "\(name).value = loop.keepAlive()"
        default:
            "\(name).value = RunLoop.Observer(activities: .\(activityName(item.kind)), repeats: \(item.kind.rawValue.hasPrefix("sees"))) "
                + "{ _, _ in call(\"\(name):\(item.kind.activity!)\") }"  // the others are observers
        }
    }

    private func activityName(_ kind: Kind) -> String {
        ["E": "entry", "T": "beforeTimers", "S": "beforeSources", "W": "beforeWaiting", "A": "afterWaiting", "X": "exit"][kind.activity!]!
    }

    private func statements(_ action: Action) -> [String] {
        let name = action.item ?? ""
        let item = "\(name).value!"
        switch action {
        case .remove: return ["loop.remove(\(item))"]
        case .invalidate:
            return [kind(name) == .delayed || kind(name) == .keepAlive ? "\(item).cancel()" : "\(item).invalidate()"]
        case .readd: return ["loop.remove(\(item))", "loop.add(\(item))"]
        case .move: return ["loop.remove(\(item))", "loop.add(\(item), forMode: \"other\")"]
        case .addToOther: return ["loop.add(\(item), forMode: \"other\")"]
        case .moveToLoop: return ["loop.remove(\(item))", "loop.remove(\(item), forMode: \"other\")", "second.loop.add(\(item))"]
        case .ready:
            switch kind(name) {
            case .source: return ["\(item).signal()"]
            case .port: return ["try? \(item).send(RunLoop.PortMessage(id: 1))"]
            case .signal: return ["pthread_kill(pthread_self(), SIGUSR1)"]
            case .listener: return ["// connect to \(item).localAddress"]
            default: return ["\(name)Pipe.write()"]
            }
        case .addToCommon: return ["loop.add(\(item), forMode: .common)"]
        case .removeFromCommon: return ["loop.remove(\(item), forMode: .common)"]
        case .makeCommon: return ["loop.addCommonMode(\"other\")"]
        case .mute: return ["\(item).events = []"]
        case .unmute: return ["\(item).events = .read"]
        case .rearm: return ["\(item).rearm()"]
        case .fire: return ["\(item).fire()"]
        case .date(_, let seconds): return ["\(item).nextFire = clock.now.advanced(by: .seconds(\(seconds)))"]
        case .stop: return ["loop.stop()"]
        case .stopSticky: return ["loop.stop(sticky: true)"]
        case .wakeUp: return ["loop.wakeUp()"]
        case .run(let mode, let seconds):
            let mode = mode == .normal ? ".default" : "\"other\""
            return ["trace.add(\"(\")", "trace.add(\")=\\(loop.run(mode: \(mode), for: .seconds(\(seconds))))\")"]
        case .block: return ["loop.performBlock { call(\"k\") }"]
        case .perform: return ["loop.perform(inModes: [.default]) { call(\"p\") }"]
        }
    }
}

extension Kind {
    /// The class of an item of this kind.
    fileprivate var type: String? {
        switch self {
        case .source: "RunLoop.CustomSource"
        case .level, .edge, .oneShot: "RunLoop.DescriptorSource"
        case .port: "RunLoop.Port"
        case .signal: "RunLoop.SignalSource"
        case .listener: "RunLoop.SocketSource"
        case .process: "RunLoop.ProcessSource"
        case .timer, .ticker, .onDemand: "RunLoop.Timer"
        case .delayed: "RunLoop.DelayedPerform"
        case .keepAlive: "RunLoop.KeepAlive"
        case .block, .perform: nil
        default: "RunLoop.Observer"
        }
    }
}
