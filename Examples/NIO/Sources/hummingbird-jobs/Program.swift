// A web server whose state is an actor on the loop, and whose jobs come from Redis through a C library. One thread serves all of it: the main
// thread, which is one of NIO's event loops, with the main loop on it.
//
//   hummingbird-jobs PATH REDIS      PATH is the server's own Unix socket, REDIS the socket of a Redis server
//
// GET / says what has been done. POST /jobs/NAME puts a job at the end of the list `jobs`, from where any program may take it: this one does.
// SIGTERM ends it: Hummingbird answers what has been asked, then the connection with Redis is closed, then the event loop is shut down.

import EventLoop
import EventLoopNIO
import Hummingbird
import NIOPosix

/// What has been done. Lives on the loop, so the queue's callbacks use it without an `await`.
actor Board {
    private nonisolated let loop: RunLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private var done: [String] = []

    init(on loop: RunLoop) { self.loop = loop }

    func finish(_ job: String) { done.append(job) }
    var summary: String { "\(done.count) done: \(done.suffix(3).joined(separator: ", "))\n" }
}

@main
enum Program {
    static func main() throws {
        guard CommandLine.arguments.count == 3 else { return print("usage: hummingbird-jobs PATH REDIS") }
        let (path, redis) = (CommandLine.arguments[1], CommandLine.arguments[2])
        try NIOHost.run { host in
            let board = Board(on: host.runLoop)
            let queue = try JobQueue(redis) { job in board.assumeIsolated { $0.finish(job) } }
            // Hummingbird's own tasks prefer nothing; the handlers await the actor, which is on NIO's thread.
            Task(executorPreference: host.runLoop) {
                do {
                    try await serve(path, board, queue, on: host)
                } catch {
                    print("\(error)")
                }
                await queue.close()
                // Hummingbird leaves a group that it was given to its owner. Without this, `run` does not return, and the process does not end.
                try? await host.eventLoop.shutdownGracefully()
            }
        }
        print("ended")
    }

    private static func serve(_ path: String, _ board: Board, _ queue: JobQueue, on host: NIOHost) async throws {
        let router = Router()
        router.get { _, _ in await board.summary }
        router.post("jobs/:name") { _, context in
            await queue.add(try context.parameters.require("name"))
            return HTTPResponse.Status.accepted
        }
        let server = Application(
            router: router, configuration: ApplicationConfiguration(address: .unixDomainSocket(path: path)),
            eventLoopGroupProvider: .shared(host.eventLoop))
        try await server.runService()
    }
}
