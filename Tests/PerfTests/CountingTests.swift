// The counters themselves: the allocator's and the tracer's.

import CPerfPeers
import Testing

@testable import eventloop_perf

@Suite(.serialized) struct CountingTests {
    @Test(.enabled(if: perf_can_count_allocations())) func `an allocation is counted, with its bytes, until it is freed`() throws {
        perf_count_allocations(true)
        defer { perf_count_allocations(false) }
        // Other tests allocate at the same time, so the count is a lower bound, for a size that no other test requests.
        let before = (perf_allocations(), perf_allocated_bytes(), perf_live_bytes())
        let block = UnsafeMutableRawPointer.allocate(byteCount: 50_000_000, alignment: 64)
        #expect(perf_allocations() > before.0)
        #expect(perf_allocated_bytes() - before.1 >= 50_000_000)
        #expect(perf_live_bytes() - before.2 >= 40_000_000)
        let held = perf_live_bytes()
        block.deallocate()
        #expect(held - perf_live_bytes() >= 40_000_000)
    }

    /// Tests ours and libevent's only: the locks of the others are in libraries that sanitizers do not instrument.
    @Test func `a contender performs the operations it was asked for`() throws {
        for measured in Catalog.all where measured.id == "W4.pass" || measured.id == "W1.n100.a1" {
            for contender in measured.contenders where ["eventloop", "libevent"].contains(contender.name) {
                let measurement = contender.measure(100)
                #expect(measurement.ops == 100)
                #expect(measurement.sample.wall_ns > 0, "\(measured.id)/\(contender.name)")
            }
        }
    }
}
