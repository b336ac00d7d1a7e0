// A replicated log of three nodes. One of them leads: it has a lease, which the others have promised, so it may answer reads by itself. An entry is
// acknowledged when two nodes have it safe. Nodes crash, are partitioned, and forget what they have not synced.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import Synchronization

struct ReplicatedLog: Sendable {
    enum Bug: Sendable, CaseIterable {
        /// A node answers before it has synced.
        case answersBeforeSync
        /// A node votes for a candidate that lacks entries.
        case electsOldLog
        /// A leader goes on when its lease is over, although another one may have newer entries.
        case ignoresEndOfLease

        /// The first one that finds it.
        var firstSeed: UInt64 {
            switch self {
            case .answersBeforeSync: 1
            case .electsOldLog: 6
            case .ignoresEndOfLease: 271
            }
        }
    }

    var bug: Bug?
    static let names = ["a", "b", "c"]
    static let lease = Duration.milliseconds(60)

    func run(_ world: SimulatedWorld) async throws {
        let seen = Seen()
        world.always("one node has the lease") { seen.leaders(at: .now) <= 1 }
        world.network.latency = .microseconds(100)...(.milliseconds(world.random(in: 1...8)))
        let nodes = Self.names.map { name in
            world.process(name) { process in
                let node = Node(process, world, bug, seen)
                try world.network.listen(process, port: 1) { await node.serve($0) }
                try await node.live()
            }
        }
        let writer = world.process("writer") { try await write(world, $0, seen) }
        world.process("reader") { try await read(world, $0, seen) }
        for _ in 0..<world.random(in: 1...3) {
            try await Task.sleep(for: .milliseconds(world.random(in: 1...120)))
            let (one, other) = (nodes[world.random(in: 0...2)], nodes[world.random(in: 0...2)])
            switch world.random(in: 0...2) {
            case 0: world.network.partition(one, from: other, for: .milliseconds(world.random(in: 20...300)))
            case 1: for node in nodes { world.network.partition(one, from: node, for: .milliseconds(world.random(in: 20...300))) }
            default: one.restart()
            }
        }
        try await world.eventually("three entries are acknowledged") { seen.acknowledged == 3 }
        try await writer.waitForEnd()
        // Power is lost everywhere, and one node with it. The newer of the other two has all that was acknowledged.
        for node in nodes { node.crash() }
        let lost = world.random(in: 0...2)
        let logs = nodes.indices.filter { $0 != lost }.map { NodeState(nodes[$0].stored(named: "state") ?? []).log }
        let newer = logs[0].isNewer(than: logs[1]) ? logs[0] : logs[1]
        for value in 1...3 where !newer.contains(where: { $0.value == value }) {
            throw Wrong("\(value) was acknowledged, and is lost: \(logs.map(\.text))")
        }
    }

    private func write(_ world: SimulatedWorld, _ process: SimulatedProcess, _ seen: Seen) async throws {
        for value in 1...3 {
            while await ask(world, process, Self.names[world.random(in: 0...2)], "write \(value)") != "ok" {
                try await Task.sleep(for: .milliseconds(25))
            }
            seen.acknowledge(value)
            try await Task.sleep(for: .milliseconds(world.random(in: 1...150)))
        }
    }

    /// What was acknowledged before the question is in the answer.
    private func read(_ world: SimulatedWorld, _ process: SimulatedProcess, _ seen: Seen) async throws {
        while true {
            let before = seen.acknowledged
            if let value = await ask(world, process, Self.names[world.random(in: 0...2)], "read").flatMap({ Int($0) }), value < before {
                throw Wrong("\(before) was acknowledged, and \(value) was read")
            }
            try await Task.sleep(for: .milliseconds(world.random(in: 20...60)))
        }
    }
}

/// One line, and its answer; nil if there is none in time.
private func ask(_ world: SimulatedWorld, _ process: SimulatedProcess, _ name: String, _ line: String) async -> String? {
    try? await world.loop.withTimeout(.milliseconds(50)) {
        let stream = try await world.network.connect(from: process, to: name, port: 1)
        defer { stream.close() }
        try await stream.write(line + "\n")
        return try await stream.readLine()
    }
}

/// What the checks of a run know.
private final class Seen: Sendable {
    private let leases = Mutex<[String: ContinuousClock.Instant]>([:])
    private let newest = Atomic(0)

    var acknowledged: Int { newest.load(ordering: .relaxed) }
    func acknowledge(_ value: Int) { newest.store(value, ordering: .relaxed) }
    func setLease(of name: String, until end: ContinuousClock.Instant?) { leases.withLock { $0[name] = end } }
    func leaders(at now: ContinuousClock.Instant) -> Int { leases.withLock { $0.values.count { $0 > now } } }
}

private struct Entry: Sendable, Equatable {
    var term: Int
    var value: Int
}

extension [Entry] {
    fileprivate func isNewer(than other: [Entry]) -> Bool { (last?.term ?? 0, count) > (other.last?.term ?? 0, other.count) }
    fileprivate var text: String { map { "\($0.term).\($0.value)" }.joined(separator: ",") }
    fileprivate init(_ text: Substring) {
        self = text.split(separator: ",").map { entry in
            let fields = entry.split(separator: ".").map { Int($0) ?? 0 }
            return Entry(term: fields[0], value: fields[1])
        }
    }
}

/// What a node keeps: the newest term that it knows, the term of the leader that its log came from, and the log.
private struct NodeState: Sendable {
    var term = 0
    var logTerm = 0
    var log: [Entry] = []

    init(_ bytes: [UInt8]) {
        let fields = String(decoding: bytes, as: UTF8.self).split(separator: " ", omittingEmptySubsequences: false)
        if fields.count == 3 { (term, logTerm, log) = (Int(fields[0]) ?? 0, Int(fields[1]) ?? 0, [Entry](fields[2])) }
    }
    var bytes: [UInt8] { Array("\(term) \(logTerm) \(log.text)".utf8) }
}

/// One start of a node.
private actor Node {
    private let process: SimulatedProcess
    private let world: SimulatedWorld
    private let bug: ReplicatedLog.Bug?
    private let seen: Seen
    private var state: NodeState
    /// Votes for nobody until then: another node may have the lease.
    private var promisedUntil: ContinuousClock.Instant
    private var isLeader = false
    private var lease = ContinuousClock.now
    /// So many entries are safe on two nodes, as this leader knows.
    private var committed = 0

    init(_ process: SimulatedProcess, _ world: SimulatedWorld, _ bug: ReplicatedLog.Bug?, _ seen: Seen) {
        (self.process, self.world, self.bug, self.seen) = (process, world, bug, seen)
        let stored = process.stored(named: "state")
        state = NodeState(stored ?? [])
        promisedUntil = stored != nil ? .now + ReplicatedLog.lease : .now
        seen.setLease(of: process.name, until: nil)
    }

    private var leads: Bool { isLeader && (.now < lease || bug == .ignoresEndOfLease) }

    private func save() async {
        process.store(state.bytes, named: "state")
        if bug != .answersBeforeSync { await process.sync() }
    }

    // MARK: Leading

    func live() async throws {
        while true {  // ends: with the process
            if leads {
                _ = await replicate()
                try await Task.sleep(for: .milliseconds(35))
            } else if .now < promisedUntil {
                try await Task.sleep(until: promisedUntil)
            } else {
                try await Task.sleep(for: .milliseconds(world.random(in: 1...20)))
                if .now >= promisedUntil { await campaign() }
            }
        }
    }

    private func campaign() async {
        state.term += 1
        let (term, asked) = (state.term, ContinuousClock.now)
        promisedUntil = asked + ReplicatedLog.lease
        isLeader = false
        await save()
        guard await isGranted("vote \(term) \(state.log.last?.term ?? 0) \(state.log.count)"), state.term == term else { return }
        (isLeader, committed, state.logTerm) = (true, 0, term)
        extendLease(asked)
        // An entry of its own term: with it, two nodes have all entries of earlier leaders.
        state.log.append(Entry(term: term, value: 0))
        _ = await replicate()
    }

    /// Whether two nodes have all of the log.
    private func replicate() async -> Bool {
        let (term, entries, asked) = (state.term, state.log, ContinuousClock.now)
        await save()
        guard isLeader, state.term == term, await isGranted("append \(term) \(entries.text)"), isLeader, state.term == term else {
            return false
        }
        extendLease(asked)
        committed = max(committed, entries.count)
        return true
    }

    private func extendLease(_ asked: ContinuousClock.Instant) {
        lease = max(lease, asked + ReplicatedLog.lease)
        promisedUntil = max(promisedUntil, lease)
        seen.setLease(of: process.name, until: lease)
    }

    private func followTerm(_ term: Int) {
        state.term = term
        isLeader = false
        seen.setLease(of: process.name, until: nil)
    }

    /// Whether one of the others agrees.
    private func isGranted(_ line: String) async -> Bool {
        await withTaskGroup(of: String?.self) { [world, process] group in
            for name in ReplicatedLog.names where name != process.name { group.addTask { await ask(world, process, name, line) } }
            var isGranted = false
            for await answer in group {
                if answer == "yes" {
                    isGranted = true
                    break
                }
                if let term = answer.flatMap({ Int($0) }), term > state.term { followTerm(term) }
            }
            group.cancelAll()
            return isGranted
        }
    }

    // MARK: Answers

    nonisolated func serve(_ stream: ByteStream) async {
        do { for try await line in stream.lines() { try await stream.write(await answer(to: line) + "\n") } } catch {}
    }

    private func answer(to line: String) async -> String {
        let fields = line.split(separator: " ", omittingEmptySubsequences: false)
        let numbers = fields.dropFirst().map { Int($0) ?? 0 }
        switch fields[0] {
        case "vote": return await vote(numbers[0], numbers[1], numbers[2])
        case "append": return await append(numbers[0], [Entry](fields[2]))
        case "write": return await write(numbers[0]) ? "ok" : "no"
        default: return leads && committed > 0 ? "\(state.log[..<committed].map(\.value).max() ?? 0)" : "no"
        }
    }

    private func vote(_ term: Int, _ lastTerm: Int, _ count: Int) async -> String {
        let hasAll = (lastTerm, count) >= (state.log.last?.term ?? 0, state.log.count) || bug == .electsOldLog
        guard term > state.term, .now >= promisedUntil, hasAll else { return "\(state.term)" }
        followTerm(term)
        promisedUntil = .now + ReplicatedLog.lease
        await save()
        return state.term == term ? "yes" : "\(state.term)"
    }

    private func append(_ term: Int, _ entries: [Entry]) async -> String {
        guard term >= state.term else { return "\(state.term)" }
        if term > state.term { followTerm(term) }
        promisedUntil = max(promisedUntil, .now + ReplicatedLog.lease)
        // A request that is late does not take away entries.
        if term > state.logTerm || entries.count > state.log.count { (state.logTerm, state.log) = (term, entries) }
        await save()
        return state.term == term ? "yes" : "\(state.term)"
    }

    private func write(_ value: Int) async -> Bool {
        guard leads else { return false }
        let term = state.term
        // The writer asks again if the answer was lost.
        if !state.log.contains(where: { $0.value == value }) { state.log.append(Entry(term: term, value: value)) }
        guard let index = state.log.firstIndex(where: { $0.value == value }) else { return false }
        while leads, state.term == term {
            if await replicate(), committed > index { return true }
        }
        return false
    }
}
