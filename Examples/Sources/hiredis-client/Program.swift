// Increments a counter of a Redis server, over one connection.
//
//   hiredis-client PATH [COUNT]      PATH is the server's socket

import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
enum Program {
    static func main() async throws {
        // hiredis writes to a server that may have closed its end.
        signal(SIGPIPE, SIG_IGN)
        guard CommandLine.arguments.count > 1 else { return print("usage: hiredis-client PATH [COUNT]") }
        let count = CommandLine.arguments.dropFirst(2).first.flatMap { Int($0) } ?? 1000

        let client = Client(path: CommandLine.arguments[1])
        let thread = try RunLoopThread(
            name: "redis",
            setup: { loop in try client.connect(on: loop) },
            drain: { _, _ in client.disconnect() },
            teardown: { _, _ in client.free() })

        // The commands are pipelined: all are sent before the first reply comes.
        let last = await withTaskGroup(of: Int?.self) { group in
            for _ in 0..<count { group.addTask { await client.increment("visits", on: thread.runLoop) } }
            var last: Int?
            for await value in group { last = max(last ?? 0, value ?? 0) }
            return last
        }
        print("visits: \(last ?? 0)")
        thread.stop()
        await thread.join()
    }
}
