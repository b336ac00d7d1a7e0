// The memory of registrations, which begins a cache line: what is freed is kept for the next, by all threads together.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite(.tags(.threads)) struct LineMemoryTests {
    /// The first word of libevent's part, which nobody uses before the registration is added.
    private static func mark(of core: SourceCorePointer) -> UnsafeMutablePointer<UInt64> {
        UnsafeMutablePointer(EventRecord.event(core.registrationAround).raw)
    }

    @Test func `each of many registrations begins a line of its own, also after as many were freed`() {
        for _ in 0..<3 {
            let cores = (0..<300).map { _ in SourceCorePointer.make(traits: .isWatched) }
            #expect(cores.allSatisfy { UInt(bitPattern: $0.registrationAround) % UInt(Registration.lineSize) == 0 })
            #expect(Set(cores).count == cores.count)
            for core in cores { core.free() }
        }
    }

    @Test func `four threads never have one registration at a time`() throws {
        let threads = (1...4).map { (thread: UInt64) in
            plainThread {
                var foreign = 0
                for round: UInt64 in 0..<2_000 {
                    let cores = (0..<4).map { _ in SourceCorePointer.make(traits: .isWatched) }
                    for core in cores { Self.mark(of: core).pointee = thread << 32 | round }
                    for core in cores {
                        if Self.mark(of: core).pointee != thread << 32 | round { foreign += 1 }
                        core.free()
                    }
                }
                return foreign
            }
        }
        for thread in threads {
            let foreign = try thread.join()
            #expect(foreign == 0)
        }
    }
}
