// Rules proved here, against an array:
// - The list of signaled sources has each source once, and any of them can leave.
// - `takeSingle` takes the source of a list that has one, and nothing of any other list. `takeAll` takes those with a signal, in order.

import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop

@Suite(.bounded) struct SignaledSourcesModelTests {
    @Test(arguments: 0..<20 as Range<UInt64>)
    func `random changes match those of an array`(seed: UInt64) throws {
        try onFreshThread { loop in
            var random = SplitMix64(seed: seed)
            let sources = (0..<4).map { RunLoop.CustomSource(order: $0) {} }
            let memberships = sources.map { SourceMembership(source: $0, loop: loop) }
            var list = SignaledSources()
            var model: [Int] = []
            for _ in 0..<400 {
                let index = random.below(sources.count)
                switch random.below(8) {
                case 0, 1, 2:
                    sources[index].signal()
                    list.add(memberships[index], inMode: 0)
                    if !model.contains(index) { model.append(index) }
                case 3: sources[index].signalWord.take()
                case 4, 5:
                    list.remove(memberships[index], inMode: 0)
                    model.removeAll { $0 == index }
                case 6:
                    let taken = list.takeSingle(inMode: 0)?.takeRetainedValue()
                    // Nil also if the only one is the rest of several.
                    #expect(taken == nil || (model.count == 1 && taken === memberships[model[0]]))
                    if taken != nil { model = [] }
                default:
                    var batch: ContiguousArray<SourceMembership> = []
                    list.takeAll(into: &batch, inMode: 0)
                    let expected = model.filter { sources[$0].isSignaled }.sorted()
                    #expect(batch.map { $0.custom.order } == expected)
                    model = []
                }
                let hasSignal = list.hasSignal
                #expect(hasSignal == model.contains { sources[$0].isSignaled })
                #expect(memberships.indices.allSatisfy { memberships[$0].locked.queuedModes.contains(0) == model.contains($0) })
            }
            list = SignaledSources()
            let hasSignal = list.hasSignal
            #expect(!hasSignal)
        }
    }

    @Test func `sources whose signals have the same time are performed as they were signaled`() throws {
        try onFreshThread { loop in
            let sources = (0..<4).map { _ in RunLoop.CustomSource {} }
            var list = SignaledSources()
            // One that leaves makes room for none that comes later.
            let first = SourceMembership(source: RunLoop.CustomSource {}, loop: loop)
            list.add(first, inMode: 0)
            for source in sources {
                source.signal()
                source.signaledAt.store(7, ordering: .relaxed)
                list.add(SourceMembership(source: source, loop: loop), inMode: 0)
                list.remove(first, inMode: 0)
            }
            var batch: ContiguousArray<SourceMembership> = []
            list.takeAll(into: &batch, inMode: 0)
            #expect(batch.map { ObjectIdentifier($0.custom) } == sources.map { ObjectIdentifier($0) })
        }
    }
}
