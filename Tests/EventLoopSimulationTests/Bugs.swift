// Programs with a race that hardly ever shows on the ordinary pool, and the same programs corrected.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import Synchronization
import Testing

struct Wrong: Error, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

final class Tally: Sendable {
    private let number = Atomic(0)
    func add(_ amount: Int = 1) { number.add(amount, ordering: .relaxed) }
    var count: Int { number.load(ordering: .relaxed) }
}

/// A program with a bug, and without it.
struct Specimen: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var kinds: Set<SimulationFailure.Kind>
    var run: @Sendable (SimulatedWorld, _ isCorrected: Bool) async throws -> Void

    static let all = [
        checkThenAct, lostWakeUp, doubleSpend, stampede, cancellationRace, farApart, sharedLease, unsyncedLog,
    ]
}

// MARK: (a) A check, then a hop, then the act

private actor Audit {
    var lines = 0
    func log() { lines += 1 }
}

private actor Account {
    var balance = 100
    let audit = Audit()

    func withdraw(_ amount: Int, checksAgain: Bool) async {
        guard balance >= amount else { return }
        await audit.log()
        if checksAgain && balance < amount { return }
        balance -= amount
    }
}

let checkThenAct = Specimen(testDescription: "(a) check-then-act across an actor hop", kinds: [.threw]) { _, isCorrected in
    let account = Account()
    async let one: Void = account.withdraw(80, checksAgain: isCorrected)
    async let other: Void = account.withdraw(80, checksAgain: isCorrected)
    _ = await (one, other)
    let balance = await account.balance
    if balance < 0 { throw Wrong("the balance is \(balance)") }
}

// MARK: (b) A lost wake-up

private actor Gate {
    private(set) var isOpen = false
    private var waiters: [CheckedContinuation<Void, Never>] = []

    func wait(checksAgain: Bool) async {
        if checksAgain && isOpen { return }
        await withCheckedContinuation { waiters.append($0) }
    }
    func open() {
        isOpen = true
        for waiter in waiters { waiter.resume() }
        waiters = []
    }
}

let lostWakeUp = Specimen(testDescription: "(b) a lost wake-up with continuations", kinds: [.deadlock]) { _, isCorrected in
    let gate = Gate()
    let looks = Tally()
    async let waiter: Void = {
        let isOpen = await gate.isOpen
        // Without this, the compiler may stay on the actor between the two calls.
        looks.add()
        if !isOpen { await gate.wait(checksAgain: isCorrected) }
    }()
    async let opener: Void = gate.open()
    _ = await (waiter, opener)
}

// MARK: (c) A client that times out and retries

let doubleSpend = Specimen(testDescription: "(c) a double spend by a retry", kinds: [.threw]) { world, isCorrected in
    let spent = Tally()
    let seen = Mutex<Set<UInt8>>([])
    let bank = world.process("bank") { bank in
        try world.network.listen(bank, port: 1) { stream in
            guard let request = try? await stream.read(exactly: 1) else { return }
            let isNew = seen.withLock { $0.insert(request[0]).inserted }
            if isNew || !isCorrected { spent.add() }
            try? await stream.write([1])
        }
    }
    _ = bank
    world.network.latency = .milliseconds(1)...(.milliseconds(30))
    let client = world.process("client") { client in
        for _ in 1...5 {
            let isDone = try? await world.loop.withTimeout(.milliseconds(60)) {
                let stream = try await world.network.connect(from: client, to: "bank", port: 1)
                defer { stream.close() }
                try await stream.write([7])
                return try await stream.read(exactly: 1) == [1]
            }
            if isDone == true { return }
        }
    }
    try await client.waitForEnd()
    try await Task.sleep(for: .seconds(1))
    if spent.count > 1 { throw Wrong("spent \(spent.count) times") }
}

// MARK: (d) A cache stampede

private actor Cache {
    private var values: [String: Int] = [:]
    private var loads: [String: Task<Int, Never>] = [:]

    func value(_ key: String) -> Int? { values[key] }
    func put(_ key: String, _ value: Int) { values[key] = value }
    func value(_ key: String, load: @escaping @Sendable () async -> Int) async -> Int {
        if let task = loads[key] { return await task.value }
        let task = Task { await load() }
        loads[key] = task
        return await task.value
    }
}

let stampede = Specimen(testDescription: "(d) a cache stampede", kinds: [.threw]) { _, isCorrected in
    let (cache, loads) = (Cache(), Tally())
    await withTaskGroup(of: Void.self) { group in
        for _ in 1...3 {
            group.addTask { @Sendable in
                if isCorrected {
                    _ = await cache.value("key") {
                        loads.add()
                        return 7
                    }
                } else if await cache.value("key") == nil {
                    loads.add()
                    await cache.put("key", 7)
                }
            }
        }
    }
    if loads.count != 1 { throw Wrong("\(loads.count) loads") }
}

// MARK: (e) A cancellation race in a task group

private actor Ledger {
    private(set) var commits = 0
    func commit(unlessDone: Bool) {
        if unlessDone && commits > 0 { return }
        commits += 1
    }
}

let cancellationRace = Specimen(testDescription: "(e) a cancellation race in a task group", kinds: [.threw]) { _, isCorrected in
    let ledger = Ledger()
    await withTaskGroup(of: Void.self) { group in
        for index in 1...2 {
            group.addTask {
                for _ in 0..<(index * 3) { await Task.yield() }
                if Task.isCancelled { return }
                await ledger.commit(unlessDone: isCorrected)
            }
        }
        await group.next()
        group.cancelAll()
    }
    let commits = await ledger.commits
    if commits != 1 { throw Wrong("\(commits) commits") }
}

// MARK: (f) A task that must be twenty turns late

private actor Flag {
    private(set) var isRaised = false
    func raise() { isRaised = true }
}

let farApart = Specimen(testDescription: "(f) a task that must be twenty turns late", kinds: [.threw]) { _, isCorrected in
    let flag = Flag()
    async let slow: Void = {
        for _ in 0..<20 { await Task.yield() }
        await flag.raise()
    }()
    if isCorrected {
        // It does not rely on being first.
        await slow
        if await !flag.isRaised { throw Wrong("the flag is not raised") }
    } else {
        async let seen = flag.isRaised
        let wasRaised = await seen
        await slow
        if wasRaised { throw Wrong("the look came last") }
    }
}

// MARK: (g) A lease that two hold after a partition

let sharedLease = Specimen(testDescription: "(g) a lease that two hold after a partition", kinds: [.invariant]) { world, isCorrected in
    let holders = Mutex<Set<String>>([])
    world.always("one process holds the lease") { holders.withLock { $0.count <= 1 } }
    let lease = Duration.seconds(10)
    world.network.latency = .milliseconds(50)...(.milliseconds(300))
    let server = world.process("server") { server in
        let expiry = Mutex<(holder: String, until: ContinuousClock.Instant)?>(nil)
        try world.network.listen(server, port: 1) { stream in
            do {
                for try await name in stream.lines() {
                    let isGranted = expiry.withLock { current in
                        if let held = current, held.holder != name, held.until > .now { return false }
                        current = (name, .now + lease)
                        return true
                    }
                    try await stream.write(isGranted ? "yes\n" : "no\n")
                }
            } catch {}
        }
    }
    let clients = ["one", "two"].map { name in
        world.process(name) { client in
            while true {
                let asked = ContinuousClock.now
                let answer = try? await world.loop.withTimeout(.seconds(3)) {
                    let stream = try await world.network.connect(from: client, to: "server", port: 1)
                    defer { stream.close() }
                    try await stream.write(name + "\n")
                    return try await stream.read(exactly: 1)
                }
                if answer == Array("y".utf8) {
                    _ = holders.withLock { $0.insert(name) }
                    // A lease counts from when it was asked for: the grant may have been under way for long.
                    let until = isCorrected ? asked + lease - .milliseconds(1) : ContinuousClock.now + lease
                    while ContinuousClock.now < until {
                        let left = until - .now
                        try await Task.sleep(for: min(.seconds(5), left))
                    }
                    _ = holders.withLock { $0.remove(name) }
                }
                try await Task.sleep(for: .milliseconds(world.random(in: 10...500)))
            }
        }
    }
    for _ in 1...4 {
        try await Task.sleep(for: .milliseconds(world.random(in: 1_000...8_000)))
        world.network.partition(server, from: clients[world.random(in: 0...1)], for: .seconds(2))
    }
    try await Task.sleep(for: .seconds(20))
}

// MARK: (h) A log that acknowledges before it has synced

let unsyncedLog = Specimen(testDescription: "(h) a log that acknowledges before it has synced", kinds: [.threw]) { world, isCorrected in
    let acknowledged = Mutex<[UInt8]>([])
    let log = world.process("log") { log in
        let entries = Mutex(log.stored(named: "entries") ?? [])
        try world.network.listen(log, port: 1) { stream in
            while let bytes = try? await stream.read(exactly: 1) {
                log.store(
                    entries.withLock { entries in
                        entries += bytes
                        return entries
                    }, named: "entries")
                if isCorrected { await log.sync() }
                guard (try? await stream.write(bytes)) != nil else { return }
                if !isCorrected { await log.sync() }
            }
        }
    }
    world.process("client") { client in
        var next: UInt8 = 0
        while next < 10 {
            guard let stream = try? await world.network.connect(from: client, to: "log", port: 1) else {
                try await Task.sleep(for: .milliseconds(10))
                continue
            }
            while next < 10 {
                guard (try? await stream.write([next])) != nil, let answer = try? await stream.read(exactly: 1) else { break }
                acknowledged.withLock { $0 += answer }
                next += 1
            }
        }
    }
    try await Task.sleep(for: .milliseconds(world.random(in: 1...30)))
    log.crash()
    let stored = log.stored(named: "entries") ?? []
    for entry in acknowledged.withLock({ $0 }) where !stored.contains(entry) { throw Wrong("entry \(entry) was acknowledged and is lost") }
}
