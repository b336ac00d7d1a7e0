// A log shipper: lines go to a collector in batches, over connections that break, from an agent that crashes to a collector that crashes. Each line
// arrives once, in order: the agent keeps a line until the collector has it safe, and the collector knows how many it has.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import Synchronization

struct LogShipper: Sendable {
    enum Bug: Sendable, CaseIterable {
        /// The agent forgets a batch when it is sent, not when it is safe.
        case forgetsUnsafe
        /// The collector appends a batch that it has already: the answer to the first one was lost.
        case appendsTwice
    }

    var bug: Bug?
    private let lineCount = 6

    func run(_ world: SimulatedWorld) async throws {
        let collected = Lines()
        world.network.resetChance = 0.03
        let collector = world.process("collector") { collector in
            collected.replace(by: collector.stored(named: "lines") ?? [])
            try world.network.listen(collector, port: 1) { await collect($0, into: collected, of: collector) }
        }
        let agent = world.process("agent") { try await ship(world, $0) }
        for _ in 0..<world.random(in: 1...3) {
            try await Task.sleep(for: .milliseconds(world.random(in: 1...12)))
            (world.random(in: 0...1) == 0 ? agent : collector).restart()
        }
        world.network.resetChance = 0
        try await world.eventually("all lines are collected") { collected.all.contains(UInt8(lineCount - 1)) }
        let lines = collected.all
        if lines != (0..<lineCount).map({ UInt8($0) }) { throw Wrong("the collector has \(lines)") }
    }

    /// A batch is a message: the number of its first line, and the lines. The answer is the number of lines that are safe.
    private func collect(_ stream: ByteStream, into lines: Lines, of process: SimulatedProcess) async {
        do {
            for try await batch in stream.frames(LengthPrefixFraming(lengthBytes: 1)) {
                let all = lines.append(batch.dropFirst(), from: Int(batch[0]), skipsKnown: bug != .appendsTwice)
                process.store(all, named: "lines")
                await process.sync()
                try await stream.write([UInt8(all.count)])
            }
        } catch {}
    }

    private func ship(_ world: SimulatedWorld, _ process: SimulatedProcess) async throws {
        var shipped = Int(process.stored(named: "shipped")?.first ?? 0)
        while shipped < lineCount {
            let end = min(shipped + world.random(in: 1...2), lineCount)
            let batch = [UInt8(shipped)] + (shipped..<end).map { UInt8($0) }
            if bug == .forgetsUnsafe { await remember(end, process) }
            let answer = try? await world.loop.withTimeout(.milliseconds(50)) {
                let stream = try await world.network.connect(from: process, to: "collector", port: 1)
                defer { stream.close() }
                try await stream.write([UInt8(batch.count)] + batch)
                return try await stream.read(exactly: 1)
            }
            if let safe = answer?.first {
                shipped = max(shipped, Int(safe))
                await remember(shipped, process)
            } else {
                try await Task.sleep(for: .milliseconds(2))
            }
        }
    }

    private func remember(_ shipped: Int, _ process: SimulatedProcess) async {
        process.store([UInt8(shipped)], named: "shipped")
        await process.sync()
    }
}

/// The lines of the collector.
private final class Lines: Sendable {
    private let lines = Mutex<[UInt8]>([])

    var all: [UInt8] { lines.withLock { $0 } }
    func replace(by stored: [UInt8]) { lines.withLock { $0 = stored } }

    /// The lines begin with this number. Returns all.
    func append(_ new: ArraySlice<UInt8>, from number: Int, skipsKnown: Bool) -> [UInt8] {
        lines.withLock { lines in
            lines += skipsKnown ? new.dropFirst(max(lines.count - number, 0)) : new
            return lines
        }
    }
}
