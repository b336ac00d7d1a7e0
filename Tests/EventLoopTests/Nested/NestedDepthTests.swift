// The rule proved here: 65,535 runs of a loop may be in progress, one inside another. One more is a precondition failure that says so (8.11).

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct `The depth of nested runs` {
    /// Runs a loop inside the handler of one source until `depth` runs are in progress. The depth that was reached.
    private static func nest(to depth: Int) throws -> Int {
        // Room for 48 KiB for each run; what is not used costs nothing.
        let thread = try RunLoopThread(name: "deep", stackSize: 3 << 30)
        let loop = thread.runLoop
        let reached: Int = try loop.performAndWait {
            let deepest = Box(0)
            let sources = Box<[RunLoop.CustomSource]>([])
            let source = RunLoop.CustomSource {
                deepest.value = loop.runDepth
                guard loop.runDepth < depth else { return }
                sources.value[0].signal()
                _ = loop.run(for: .zero, returnAfterSourceHandled: true)
            }
            sources.value = [source]
            loop.add(source)
            source.signal()
            _ = loop.run(for: .zero, returnAfterSourceHandled: true)
            source.invalidate()
            sources.value = []
            return deepest.value
        }
        thread.stop()
        _ = thread.join(timeout: patience)
        return reached
    }

    /// AddressSanitizer's frames are too large for this. ThreadSanitizer has room for 65,536 calls in progress on a thread, writes beyond it, and
    /// may then wait for itself for ever.
    private static let isPossible = !isUnderAddressSanitizer && !isUnderThreadSanitizer && MemoryLayout<Int>.size == 8

    @Test(.enabled(if: isPossible)) func `65,535 runs may be in progress, all in calls of one source`() async {
        await #expect(processExitsWith: .success) {
            let reached = try Self.nest(to: 65_535)
            #expect(reached == 65_535)
        }
    }

    @Test(.enabled(if: isPossible)) func `a run inside 65,535 others traps and says so`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = try Self.nest(to: 65_536)
        }
        let words = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(words.contains("was called inside 65535 runs"))
    }
}
