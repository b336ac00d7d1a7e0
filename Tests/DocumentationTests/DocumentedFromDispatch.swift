// The program of docs/from-dispatch.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopTestSupport
import Testing

/// Calls `body` for each file, on the threads of the pool. Reports the progress on the loop's thread, and returns the number of files.
func forEachFile(
    in files: [String], on loop: RunLoop, report: @escaping @Sendable (Int) -> Void, _ body: @escaping @Sendable (String) async -> Void
) async throws -> Int {
    let done = LoopBound(0, to: loop)
    let timer = RunLoop.Timer(every: .seconds(1)) { _ in report(done.value) }
    loop.add(timer, forMode: .common)
    defer { timer.invalidate() }
    await withTaskGroup { group in
        for file in files {
            group.addTask {
                await body(file)
                loop.perform { done.value += 1 }
            }
        }
    }
    return try await loop.performAsync { done.value }  // after the closures that were queued before
}

@Suite(.bounded) struct DocumentedFromDispatch {
    @Test func `files are counted on the loop's thread, and the progress is reported there`() async throws {
        let thread = try RunLoopThread(name: "progress")
        let loop = thread.runLoop
        let (seen, reports) = (Box<[String]>([]), Box<[Int]>([]))
        let files = (1...3).map { "file \($0)" }
        let count = try await forEachFile(in: files, on: loop) { count in
            precondition(loop.isCurrent)
            reports.value.append(count)
        } _: { file in
            // The last file takes until the timer has fired.
            if file == "file 3" { try? await suspendUntil("a report") { reports.value.contains(2) } }
            seen.value.append(file)
        }
        #expect(count == 3)
        #expect(seen.value.sorted() == files)
        thread.stop()
        await thread.join()
    }
}
