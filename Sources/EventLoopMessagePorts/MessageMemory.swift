// How much memory the clients of a port may use for incomplete messages. Pure: tokens, processes and sizes in, decisions out.

internal import EventLoop

/// The memory for incomplete messages, in two pools, so that messages of a usual size do not wait for very long ones.
struct MessageMemory {
    /// Longer frames use the other pool.
    static let shortFrameLimit = (1 << 17) + Frame.headerSize + Frame.sealSize

    private var shortPool = MemoryPool(longest: shortFrameLimit, atLeast: 64 * shortFrameLimit, reserve: 16 * shortFrameLimit)
    private var longPool: MemoryPool

    /// - Parameter longest: the size of the longest frame, in bytes.
    init(longest: Int, atLeast least: Int = 64 << 20) { longPool = MemoryPool(longest: longest, atLeast: least) }

    /// The size of the pool for long frames, without its reserve.
    var longPoolSize: Int { longPool.size }
    var hasWaiters: Bool { shortPool.hasWaiters || longPool.hasWaiters }
    var testsOnlyGranted: Int { shortPool.testsOnlyGranted + longPool.testsOnlyGranted }

    func granted(to token: UInt64) -> Int { shortPool.granted(to: token) + longPool.granted(to: token) }

    mutating func request(_ size: Int, for token: UInt64, process: Int32) -> Bool {
        size <= Self.shortFrameLimit
            ? shortPool.request(size, for: token, process: process) : longPool.request(size, for: token, process: process)
    }

    mutating func release(_ token: UInt64) -> [UInt64] { shortPool.release(token) + longPool.release(token) }
}

/// One pool of memory for incomplete frames.
///
/// Every connection has an allowance of its own, so small messages never wait. A longer frame is read on only once memory for all of it is
/// granted, so a frame that has memory can always be completed. Connections without a grant wait, and are not read meanwhile.
///
/// The process with the least memory is next; within a process, the connection that has waited longest. A frame never overtakes another
/// that does not fit yet. The reserve is only for processes without a grant, so a process that fills the pool cannot use it up.
struct MemoryPool {
    /// What a connection may use without a grant.
    static let allowance = 1 << 14

    let size: Int
    /// In addition to `size`: at least one frame of the longest kind.
    let reserve: Int

    private struct Grant {
        let process: Int32
        let size: Int
    }

    private struct Waiter {
        let token: UInt64
        let grant: Grant
    }

    private var grants: [UInt64: Grant] = [:]
    private var grantedTotal = 0
    private var grantedByProcess: [Int32: Int] = [:]
    private var waiters = LinkedQueue<Waiter>()
    private var tickets: [UInt64: LinkedQueue<Waiter>.Ticket] = [:]

    /// - Parameter longest: the size of the longest frame, in bytes.
    init(longest: Int, atLeast least: Int, reserve: Int? = nil) {
        self.reserve = reserve ?? longest
        size = max(least, 4 * longest) - self.reserve
    }

    var hasWaiters: Bool { !waiters.isEmpty }
    var testsOnlyGranted: Int { grantedTotal }

    /// The memory that a connection has in addition to its allowance.
    func granted(to token: UInt64) -> Int { grants.isEmpty ? 0 : grants[token]?.size ?? 0 }

    /// Returns true if the memory is granted, and false if the connection has to wait: then a later call of `release` returns its token. A
    /// connection that waits may call this again.
    mutating func request(_ size: Int, for token: UInt64, process: Int32) -> Bool {
        if tickets[token] != nil { return false }
        let grant = Grant(process: process, size: size)
        if waiters.isEmpty && fits(grant) {
            add(grant, for: token)
            return true
        }
        tickets[token] = waiters.appendForTicket(Waiter(token: token, grant: grant))
        // Its process may be the one with the least memory.
        return grantToWaiters().contains(token)
    }

    /// Takes back the grant of a connection, or its place among the waiters. Returns the tokens of those that have a grant now.
    mutating func release(_ token: UInt64) -> [UInt64] {
        if let ticket = tickets.removeValue(forKey: token) { waiters.remove(ticket) }
        if let grant = grants.removeValue(forKey: token) {
            grantedTotal -= grant.size
            let left = grantedByProcess[grant.process, default: 0] - grant.size
            grantedByProcess[grant.process] = left == 0 ? nil : left
        }
        return waiters.isEmpty ? [] : grantToWaiters()
    }

    private func fits(_ grant: Grant) -> Bool {
        grantedTotal + grant.size <= (grantedByProcess[grant.process] == nil ? size + reserve : size)
    }

    private mutating func add(_ grant: Grant, for token: UInt64) {
        grants[token] = grant
        grantedTotal += grant.size
        grantedByProcess[grant.process, default: 0] += grant.size
    }

    private mutating func grantToWaiters() -> [UInt64] {
        var granted: [UInt64] = []
        while let (ticket, waiter) = nextWaiter(), fits(waiter.grant) {  // ends: each iteration removes a waiter
            waiters.remove(ticket)
            tickets[waiter.token] = nil
            add(waiter.grant, for: waiter.token)
            granted.append(waiter.token)
        }
        return granted
    }

    private func nextWaiter() -> (LinkedQueue<Waiter>.Ticket, Waiter)? {
        waiters.entries.min {
            let (one, other) = ($0.element.grant.process, $1.element.grant.process)
            return (grantedByProcess[one, default: 0], $0.ticket) < (grantedByProcess[other, default: 0], $1.ticket)
        }.map { ($0.ticket, $0.element) }
    }
}
