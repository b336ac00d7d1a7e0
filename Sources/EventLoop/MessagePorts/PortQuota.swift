// Who may make a port keep how much. Pure: tokens, processes and numbers in, decisions out.

/// Room for all messages that come in pieces: of two kinds, so that those of a usual size do not wait for those that are very long.
struct PortRoom {
    /// Longer frames are of the other kind.
    static let usual = (1 << 17) + Frame.headerSize + Frame.sealSize

    private var short = PortQuota(longest: usual, atLeast: 64 * usual, reserve: 16 * usual)
    private var long: PortQuota

    /// - Parameter longest: the bytes of the longest frame.
    init(longest: Int, atLeast least: Int = 64 << 20) { long = PortQuota(longest: longest, atLeast: least) }

    /// For the long ones, without the reserve.
    var pool: Int { long.pool }
    var hasWaiters: Bool { short.hasWaiters || long.hasWaiters }
    var testsOnlyGranted: Int { short.testsOnlyGranted + long.testsOnlyGranted }

    func room(of token: UInt64) -> Int { short.room(of: token) + long.room(of: token) }

    mutating func ask(_ token: UInt64, process: Int32, for amount: Int) -> Bool {
        amount <= Self.usual ? short.ask(token, process: process, for: amount) : long.ask(token, process: process, for: amount)
    }

    mutating func giveBack(_ token: UInt64) -> [UInt64] { short.giveBack(token) + long.giveBack(token) }
}

/// Room for messages of one kind.
///
/// Every connection has an allowance of its own, so small messages wait for nobody. A longer frame is read on only once there is room for all of
/// it, so that a frame which has begun to take room can always end: it never needs more. Who finds none waits, and is not read meanwhile.
///
/// The process that has the least is next; of one process the connection that has waited longest. A frame does not overtake another that does
/// not fit yet. What a process without any room may have beyond the pool is out of reach for one that has filled the pool.
struct PortQuota {
    /// What a connection may keep without asking.
    static let allowance = 1 << 14

    /// For all together.
    let pool: Int
    /// Beside the pool, for processes that have nothing of it: one frame of the longest kind at least.
    let reserve: Int

    private struct Grant {
        let process: Int32
        let amount: Int
    }

    private struct Asker {
        let token: UInt64
        let grant: Grant
    }

    private var grants: [UInt64: Grant] = [:]
    private var granted = 0
    private var grantedByProcess: [Int32: Int] = [:]
    private var waiting = RevocableQueue<Asker>()
    private var tickets: [UInt64: RevocableQueue<Asker>.Ticket] = [:]

    /// - Parameter longest: the bytes of the longest frame.
    init(longest: Int, atLeast least: Int, reserve: Int? = nil) {
        self.reserve = reserve ?? longest
        pool = max(least, 4 * longest) - self.reserve
    }

    var hasWaiters: Bool { !waiting.isEmpty }
    var testsOnlyGranted: Int { granted }

    /// The room that a connection has beyond its allowance.
    func room(of token: UInt64) -> Int { grants.isEmpty ? 0 : grants[token]?.amount ?? 0 }

    /// False when it has to wait; then a later call hands it out. One that waits may ask again.
    mutating func ask(_ token: UInt64, process: Int32, for amount: Int) -> Bool {
        if tickets[token] != nil { return false }
        let grant = Grant(process: process, amount: amount)
        if waiting.isEmpty && fits(grant) {
            give(grant, to: token)
            return true
        }
        tickets[token] = waiting.append(Asker(token: token, grant: grant))
        // It may be the process with the least.
        return giveToWaiters().contains(token)
    }

    /// Takes back the room of a connection, or its place among those that wait. Those that have room now.
    mutating func giveBack(_ token: UInt64) -> [UInt64] {
        if let ticket = tickets.removeValue(forKey: token) { waiting.remove(ticket) }
        if let grant = grants.removeValue(forKey: token) {
            granted -= grant.amount
            let left = grantedByProcess[grant.process, default: 0] - grant.amount
            grantedByProcess[grant.process] = left == 0 ? nil : left
        }
        return waiting.isEmpty ? [] : giveToWaiters()
    }

    private func fits(_ grant: Grant) -> Bool {
        granted + grant.amount <= (grantedByProcess[grant.process] == nil ? pool + reserve : pool)
    }

    private mutating func give(_ grant: Grant, to token: UInt64) {
        grants[token] = grant
        granted += grant.amount
        grantedByProcess[grant.process, default: 0] += grant.amount
    }

    private mutating func giveToWaiters() -> [UInt64] {
        var given: [UInt64] = []
        while let (ticket, asker) = next(), fits(asker.grant) {  // ends: one goes a turn
            waiting.remove(ticket)
            tickets[asker.token] = nil
            give(asker.grant, to: asker.token)
            given.append(asker.token)
        }
        return given
    }

    private func next() -> (RevocableQueue<Asker>.Ticket, Asker)? {
        waiting.entries.min {
            (grantedByProcess[$0.value.grant.process, default: 0], $0.key) < (grantedByProcess[$1.value.grant.process, default: 0], $1.key)
        }.map { ($0.key, $0.value) }
    }
}
