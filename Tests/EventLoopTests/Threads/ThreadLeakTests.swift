// Rules proved here:
// - Ended threads leak no descriptor, thread or memory, even if they had jobs and timers.
// - `top -H` shows a thread's name, truncated to whole characters. A thread has the requested stack size; the error for an impossible size
//   names that size.
//
// Resources that belong to the process are counted in a process of its own.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded, .serialized, .tags(.threads)) struct ThreadLeakTests {
    @Test func `ten thousand ended threads leak no descriptor, thread or memory`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func useThread(_ number: Int) throws {
                let thread = try RunLoopThread(name: "short")
                let loop = thread.runLoop
                let ledger = Ledger(on: loop)
                Task(executorPreference: loop) { await ledger.append("job") }
                loop.add(RunLoop.Timer(after: .seconds(3600)) { _ in })
                let answer = try loop.performAndWait { number + 1 }
                thread.stop()
                #expect(thread.join(timeout: patience) && answer == number + 1)
            }
            for number in 0..<500 { try useThread(number) }
            let before = (openDescriptors(), threadCount(settlingAt: 0), residentPages())
            for number in 0..<10_000 { try useThread(number) }
            #expect(openDescriptors().count < before.0.count + 10, "\(before.0) \(openDescriptors())")
            // A detached thread disappears a moment after it has let `join` return.
            #expect(threadCount(settlingAt: before.1 + 4) <= before.1 + 4)
            // 16 MiB: less than two kilobytes for each thread. A sanitizer's own data grows by more.
            let isSanitized = isUnderThreadSanitizer || isUnderAddressSanitizer
            #expect(isSanitized || residentPages() < before.2 + 4096, "\(before.2) pages before, \(residentPages()) after")
        }
    }

    @Test func `top shows the name, truncated between characters`() throws {
        for (name, shown) in [
            ("worker-7", "worker-7"), ("exactly-15-byte", "exactly-15-byte"), ("zwölf Kannen für", "zwölf Kannen f"), ("", ""),
        ] {
            let thread = try RunLoopThread(name: name)
            defer { thread.stop() }
            let comm = try thread.runLoop.performAndWait { contents(of: "/proc/thread-self/comm") }
            #expect(comm == shown + "\n")
            #expect(thread.name == name)
        }
    }

    @Test func `a stack size is rounded up to whole pages, and an impossible size is refused`() throws {
        let page = sysconf(Int32(_SC_PAGESIZE))
        let thread = try RunLoopThread(name: "odd", stackSize: (1 << 20) + 1)
        defer { thread.stop() }
        let size = try thread.runLoop.performAndWait { stackSizeOfThisThread() }
        #expect(size >= (1 << 20) + page)
        for size in [-1, 0, 1, Int.max] {
            do {
                _ = try RunLoopThread(name: "none", stackSize: size)
                Issue.record("started with a stack of \(size) bytes")
            } catch let error as RunLoop.SourceError {
                guard case .system(let operation, let code) = error else {
                    Issue.record("\(error)")
                    continue
                }
                #expect(operation.contains("\(size) bytes"))
                #expect(code != 0)
            }
        }
    }
}

/// The number of threads of the process, once it has fallen to `settled` or some time has passed.
private func threadCount(settlingAt settled: Int) -> Int {
    var count = 0
    try? waitUntil("threads end") {
        count = folderEntries("/proc/self/task")
        return count <= settled || settled == 0
    }
    return count
}

private func folderEntries(_ path: String) -> Int {
    guard let folder = opendir(path) else { return -1 }
    defer { closedir(folder) }
    var count = 0
    while readdir(folder) != nil { count += 1 }
    return count
}

private func residentPages() -> Int {
    Int(contents(of: "/proc/self/statm").split(separator: " ")[1]) ?? -1
}

private func contents(of path: String) -> String {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(descriptor) }
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = read(descriptor, &buffer, buffer.count)
    return String(decoding: buffer[..<max(count, 0)], as: UTF8.self)
}

#endif
