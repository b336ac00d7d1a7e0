// The program of docs/simulation.md.

import EventLoopSimulation
import EventLoopTestSupport
import Testing

private actor Audit {
    var lines = 0
    func log() { lines += 1 }
}

private actor Account {
    var balance = 100
    let audit = Audit()

    func withdraw(_ amount: Int) async -> Bool {
        guard balance >= amount else { return false }
        await audit.log()
        balance -= amount
        return true
    }
}

private func twoWithdrawals() async throws -> Int {
    let account = Account()
    async let first = account.withdraw(80)
    async let second = account.withdraw(80)
    _ = await (first, second)
    return await account.balance
}

@Suite(.whereSimulated, .bounded)
struct PageTests {
    @Test func `the page's race is found, with the text that the page has`() async throws {
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate { _ in
                let balance = try await twoWithdrawals()
                if balance < 0 { throw Wrong("the balance is \(balance)") }
            }
        }
        if isLong { print(failure) }
        #expect(failure.kind == .threw)
        #expect(failure.trace.count < 30)
    }
}
