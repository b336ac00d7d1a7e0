// Rules proved here:
// - Any number of modes is found by name, whatever the length of the names and wherever their text is in memory (2.2).
// - A loop finds a mode by name while another thread makes modes.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite(.bounded) struct `Finding one of many modes` {
    /// A name whose text is not in the memory of any earlier one, short or long.
    private static func name(_ number: Int) -> RunLoop.Mode {
        RunLoop.Mode(number.isMultiple(of: 2) ? "m\(number)" : "the mode with the number \(number)")
    }

    @Test func `each of a thousand modes is found, and no other name is`() throws {
        try onFreshThread { loop in
            let sources = (0..<1_000).map { _ in RunLoop.CustomSource {} }
            for (number, source) in sources.enumerated() { loop.add(source, forMode: Self.name(number)) }
            #expect(loop.modes.count == 1_001)
            for (number, source) in sources.enumerated() {
                #expect(loop.contains(source, forMode: Self.name(number)))
                #expect(loop.run(mode: Self.name(number), until: .distantPast) == .timedOut)
                #expect(loop.run(mode: Self.name(number + 1_000), until: .distantPast) == .finished)
            }
            #expect(loop.modes.count == 1_001)
        }
    }

    @Test func `a mode is found while another thread makes modes`() throws {
        try onFreshThread { loop in
            let performed = Box(0)
            let maker = plainThread {
                for number in 0..<300 { loop.perform(inModes: [Self.name(number)]) { performed.change { $0 += 1 } } }
            }
            while performed.value < 300 {  // ends: each closure is performed in a run of its mode
                for number in 0..<300 { _ = loop.run(mode: Self.name(number), until: .distantPast) }
            }
            try maker.join()
            #expect(loop.modes.count == 301)
        }
    }
}
