// Rule proved here (decision 24):
// - The library holds every lock of process-wide state over every fork: a `holdOverFork` in the lock's file locks each static lock, and
//   LoopForks, PortForks or WatchdogForks calls that function. A file of EventLoopCF calls it itself.

import Testing

@Suite struct ForkedStateTests {
    @Test func `the library holds every process-wide lock over a fork`() {
        let sources = Checkout.files.filter { $0.path.hasPrefix("Sources/EventLoop/") || $0.path.hasPrefix("Sources/EventLoopCF/") }
        let calls = sources.flatMap(\.lines).filter {
            $0.text.contains(/^ +[A-Z]\w+\.holdOverFork\(\)$/) || $0.text.contains("holdOverForks({ ")
        }
        var found = 0
        for file in sources {
            let locks = file.lines.filter {
                $0.text.contains("static let ") && ($0.text.contains("ForkAwareMutex") || $0.text.contains("Mutex"))
            }
            for lock in locks {
                found += 1
                // `private static let loops = ForkAwareMutex…`
                let words = lock.text.split { $0 == " " || $0 == ":" }
                let name = words.drop { $0 != "let" }.dropFirst().first ?? ""
                #expect(
                    file.lines.contains { $0.text.contains("= \(name).lockValue()") },
                    "\(file.path):\(lock.number): `\(name)` is not held over a fork; see LoopForks.swift")
            }
            let holds = file.lines.filter { $0.text.contains("static func holdOverFork()") }
            #expect(holds.count == (locks.isEmpty ? 0 : 1), "\(file.path)")
        }
        #expect(found >= 6)
        #expect(calls.count == sources.filter { $0.lines.contains { $0.text.contains("static func holdOverFork()") } }.count)
    }
}
