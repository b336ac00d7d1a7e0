// What the program asked the library for, and what came of it. At the end of a run the two must be equal.

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
    /// The library refused what was asked for, and said so.
    func takeBack(_ count: Int = 1) { askedCount.subtract(count, ordering: .sequentiallyConsistent) }
    func finish(_ count: Int = 1) { doneCount.add(count, ordering: .sequentiallyConsistent) }
}

/// All accounts, and the faults that no count shows. Thread-safe.
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

    /// Something that must never happen. The run fails.
    func fault(_ text: String) {
        content.withLock { if $0.faults.count < 20 { $0.faults.append(text) } }
    }

    var accounts: [Account] { content.withLock { $0.accounts } }
    var faults: [String] { content.withLock { $0.faults } }

    /// Work that was asked for and not done, or done twice.
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

    /// Says that a closure needs the canary.
    func touch() {}
}
