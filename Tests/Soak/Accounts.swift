// The requests that the program makes of the library, and their results. At the end of a run the two must balance.

import Synchronization

/// One kind of work. Thread-safe.
final class Account: Sendable {
    let name: String
    private let askedCount = Atomic(0)
    private let doneCount = Atomic(0)

    fileprivate init(_ name: String) { self.name = name }

    var asked: Int { askedCount.load(ordering: .sequentiallyConsistent) }
    var done: Int { doneCount.load(ordering: .sequentiallyConsistent) }

    func ask(_ count: Int = 1) { askedCount.add(count, ordering: .sequentiallyConsistent) }
    /// The library refused the request, and reported the refusal.
    func takeBack(_ count: Int = 1) { askedCount.subtract(count, ordering: .sequentiallyConsistent) }
    func finish(_ count: Int = 1) { doneCount.add(count, ordering: .sequentiallyConsistent) }
}

/// All accounts, and the faults that no count reveals. Thread-safe.
final class Book: Sendable {
    private struct Content {
        var accounts: [Account] = []
        var faults: [String] = []
    }
    private let content = Mutex(Content())

    func account(_ name: String) -> Account {
        let account = Account(name)
        content.withLock { $0.accounts.append(account) }
        return account
    }

    /// Records an event that must never happen; the run then fails.
    func fault(_ text: String) {
        content.withLock { if $0.faults.count < 20 { $0.faults.append(text) } }
    }

    var accounts: [Account] { content.withLock { $0.accounts } }
    var faults: [String] { content.withLock { $0.faults } }

    /// Requests that were not carried out, or carried out twice.
    var imbalances: [Account] { accounts.filter { $0.asked != $0.done } }
}

/// Counts in an account when it is released: for handlers, which the library must release with their items.
final class Canary: Sendable {
    private let account: Account

    init(_ account: Account) {
        self.account = account
        account.ask()
    }

    deinit { account.finish() }

    /// Makes a closure retain the canary.
    func touch() {}
}
