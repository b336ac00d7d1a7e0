// Rules proved here (4.1, 4.12):
// - A run that returns after a source leaves the other ready descriptors for the next such run, which does not ask the kernel about all of
//   them again. It calls none that is ready no more, and none whose descriptor was closed.
// - Each ready descriptor has its turn, also one that becomes ready while others are left.

import EventLoopTestSupport
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs once, for one source.
private func runOnce(_ loop: RunLoop) -> RunLoop.RunResult { loop.run(until: .distantPast, returnAfterSourceHandled: true) }

/// Closes the writing end of a pipe.
private func replaceWritingEnd(of pipe: Pipe, byThatOf other: Pipe) {
    let number = dup2(other.writeEnd, pipe.writeEnd)
    precondition(number == pipe.writeEnd, "dup2: errno \(errno)")
}

@Suite(.bounded, .tags(.memory)) struct `Leftovers of runs that return after a source` {
    /// How often the loop has asked the kernel: each question ends a stretch of work, and so does the end of a run.
    private func stretches(_ loop: RunLoop) -> UInt64 { loop.statistics.responseDelays.count }

    @Test func `the kernel is asked about all descriptors once while they are served one by one`() throws {
        try inManualTime { loop, _, _ in
            let pipes = (0..<10).map { _ in Pipe() }
            for pipe in pipes {
                loop.add(try readSource(pipe) { _ in pipe.readAll() })
                pipe.write()
            }
            let before = stretches(loop)
            for _ in pipes { #expect(runOnce(loop) == .handledSource) }
            #expect(stretches(loop) - before == 10 + 1)
            #expect(runOnce(loop) == .timedOut)
        }
    }

    @Test func `a leftover that was read by somebody else is passed over, and the next one is called`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipes = (0..<4).map { _ in Pipe() }
            for (index, pipe) in pipes.enumerated() {
                loop.add(try readSource(pipe) { _ in trace.add("\(index):\(pipe.readAll())") })
                pipe.write()
            }
            trace.add("\(runOnce(loop))")
            pipes[1].readAll()
            pipes[2].readAll()
            trace.add("\(runOnce(loop))")
            trace.add("\(runOnce(loop))")
            return trace.description
        }
        #expect(trace == "0:x handledSource 3:x handledSource timedOut")
    }

    @Test func `if all leftovers were read by somebody else, the run finds what is ready now`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipes = (0..<3).map { _ in Pipe() }
            for (index, pipe) in pipes.enumerated() {
                loop.add(try readSource(pipe) { _ in trace.add("\(index):\(pipe.readAll())") })
                if index < 2 { pipe.write() }
            }
            trace.add("\(runOnce(loop))")
            pipes[1].readAll()
            pipes[2].write()
            trace.add("\(runOnce(loop))")
            return trace.description
        }
        #expect(trace == "0:x handledSource 2:x handledSource")
    }

    @Test func `a leftover whose other end has hung up is called`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipes = (0..<2).map { _ in Pipe() }
            let pair = SocketPair()
            let far = Box(true)
            for (index, pipe) in pipes.enumerated() {
                loop.add(try readSource(pipe) { _ in trace.add("\(index)\(pipe.readAll())") })
                pipe.write()
            }
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .read) { source, _ in
                    trace.add("pair\(drain(pair.near))")
                    if !far.value { source.invalidate() }
                })
            pair.sendFromFar("x")
            trace.add("\(runOnce(loop))")
            pair.closeFar()
            far.change { $0 = false }
            for _ in 0..<2 { trace.add("\(runOnce(loop))") }
            return trace.description
        }
        #expect(trace == "0x handledSource 1x handledSource pairx handledSource")
    }

    @Test func `the only edge of a hang-up is not lost among leftovers`() async {
        // In a process of its own: another test's child of fork would keep the writing ends open.
        await #expect(processExitsWith: .success) {
            let trace = try inManualTime { loop, _, trace in
                let pipes = (0..<3).map { _ in Pipe() }
                for (index, pipe) in pipes.enumerated() {
                    // The second source of a descriptor is behind a set of its own, which reports a hang-up as nothing but that.
                    for name in ["a", "b"] {
                        loop.add(
                            try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: .edge) { _, _ in
                                trace.add("\(index)\(name)")
                            })
                    }
                }
                _ = runOnce(loop)
                let other = Pipe()
                for pipe in pipes { replaceWritingEnd(of: pipe, byThatOf: other) }
                while runOnce(loop) == .handledSource {}  // ends: each source is called once
                return trace.list.sorted().joined(separator: " ")
            }
            #expect(trace == "0a 0b 1a 1b 2a 2b")
        }
    }

    @Test func `a more urgent descriptor goes before leftovers`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipes = (0..<3).map { _ in Pipe() }
            let urgent = Pipe()
            for (index, pipe) in pipes.enumerated() {
                loop.add(try readSource(pipe) { _ in trace.add("\(index)\(pipe.readAll())") })
                pipe.write()
            }
            loop.add(
                try RunLoop.DescriptorSource(descriptor: urgent.readEnd, events: .read, priority: .high) { _, _ in
                    trace.add("urgent\(urgent.readAll())")
                })
            _ = runOnce(loop)
            urgent.write()
            for _ in 0..<3 { _ = runOnce(loop) }
            return trace.description
        }
        #expect(trace == "0x urgentx 1x 2x")
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `at random, a run calls one descriptor that is ready if there is one, and each has its turn`(seed: UInt64) throws {
        try inManualTime { loop, _, _ in
            var random = SplitMix64(seed: seed)
            let count = 7
            let pipes = (0..<count).map { _ in Pipe() }
            let called = Box<[Int]>([])
            var sources: [RunLoop.DescriptorSource] = []
            for (index, pipe) in pipes.enumerated() {
                let source = try readSource(pipe) { _ in
                    called.change { $0.append(index) }
                    pipe.readAll()
                }
                sources.append(source)
                loop.add(source)
            }
            var isReady = Array(repeating: false, count: count)
            var isAdded = Array(repeating: true, count: count)
            var waits = Array(repeating: 0, count: count)
            for _ in 0..<400 {
                let index = random.below(count)
                switch random.below(8) {
                case 0, 1, 2:
                    pipes[index].write()
                    isReady[index] = true
                case 3:
                    pipes[index].readAll()
                    isReady[index] = false
                case 4:
                    if isAdded[index] { loop.remove(sources[index]) } else { loop.add(sources[index]) }
                    isAdded[index].toggle()
                case 5 where random.below(8) == 0:
                    called.change { $0 = [] }
                    _ = loop.run(until: .distantPast)
                    #expect(Set(called.value) == Set((0..<count).filter { isReady[$0] && isAdded[$0] }))
                    for index in called.value { isReady[index] = false }
                default:
                    called.change { $0 = [] }
                    let ready = (0..<count).filter { isReady[$0] && isAdded[$0] }
                    let result = runOnce(loop)
                    #expect(called.value.count == (ready.isEmpty ? 0 : 1))
                    #expect(result == (ready.isEmpty ? (isAdded.contains(true) ? .timedOut : .finished) : .handledSource))
                    guard let served = called.value.first else { break }
                    #expect(ready.contains(served))
                    isReady[served] = false
                    for index in 0..<count { waits[index] = isReady[index] && isAdded[index] ? waits[index] + 1 : 0 }
                    #expect(waits.max()! <= 2 * count)
                }
            }
        }
    }
}
