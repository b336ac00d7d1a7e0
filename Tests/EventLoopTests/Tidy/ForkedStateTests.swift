// Rule proved here (decision 24):
// - The library holds every lock of process-wide state over every fork: a `hold()` in the lock's file locks each static lock, and
//   LoopGlobals, PortGlobals or WatchdogGlobals calls that function. A file of EventLoopCF calls it itself.

import Testing

@Suite struct ForkedStateTests {
    @Test func `the library holds every process-wide lock over a fork`() {
        let modules = ["EventLoop", "EventLoopCF", "EventLoopMessagePorts", "EventLoopObserving"]
        let sources = Checkout.files.filter { file in modules.contains { file.path.hasPrefix("Sources/\($0)/") } }
        let calls = sources.flatMap(\.lines).filter {
            $0.text.contains(/^ +[A-Z]\w+\.hold\(\)$/)
                || $0.text.contains("CPLATFORM_GLOBALS_OF_SOCKETS), { SocketTable.hold() }")
        }
        var found = 0
        let holders = sources.filter { !$0.path.hasSuffix("Globals.swift") }
        for file in holders {
            let locks = file.lines.filter {
                $0.text.contains("static let ") && ($0.text.contains("LoopLock") || $0.text.contains("Mutex"))
            }
            for lock in locks {
                found += 1
                // `private static let loops = LoopLock…`
                let words = lock.text.split { $0 == " " || $0 == ":" }
                let name = words.drop { $0 != "let" }.dropFirst().first ?? ""
                #expect(
                    file.lines.contains { $0.text.contains("= \(name).lockValue()") },
                    "\(file.path):\(lock.number): `\(name)` is not held over a fork; see LoopGlobals.swift")
            }
            let holds = file.lines.filter { $0.text.contains("static func hold()") }
            #expect(holds.count == (locks.isEmpty ? 0 : 1), "\(file.path)")
        }
        #expect(found >= 6)
        #expect(calls.count == holders.filter { $0.lines.contains { $0.text.contains("static func hold()") } }.count)
    }
}
