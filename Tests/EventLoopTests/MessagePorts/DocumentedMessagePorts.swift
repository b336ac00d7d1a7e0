// The code of docs/message-ports.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopMessagePorts
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// MARK: The check-in of the Guide's Listings 3-17 to 3-19

private let checkin: Int32 = 100

/// The main thread's connections to its workers. Touched only on its thread.
private final class Workers {
    var ports: [RunLoop.RemoteMessagePort] = []
}

/// Listing 3-17: a port for the workers' messages, and a worker that gets its name.
private func spawnWorker(_ mainName: String, _ workerName: String) throws -> (RunLoop.LocalMessagePort, RunLoopThread, LoopBound<Workers>) {
    let workers = LoopBound(Workers())
    let port = try RunLoop.LocalMessagePort(name: mainName) { _, id, data in
        receive(id, data, workers)
    }
    RunLoop.current.add(port)
    let thread = try RunLoopThread(name: "worker", setup: { loop in try checkIn(loop, mainName, workerName) })
    return (port, thread, workers)
}

/// Listing 3-18: the check-in brings the name of the worker's port.
private func receive(_ id: Int32, _ data: [UInt8], _ workers: LoopBound<Workers>) -> [UInt8]? {
    guard id == checkin else { return nil }  // Process other messages.
    let name = String(decoding: data, as: UTF8.self)
    if let port = try? RunLoop.RemoteMessagePort(name: name) { workers.value.ports.append(port) }
    return nil
}

/// Listing 3-19: the worker connects to the main thread, creates its own port, and sends its name.
private func checkIn(_ loop: RunLoop, _ mainName: String, _ workerName: String) throws {
    let mainThread = try RunLoop.RemoteMessagePort(name: mainName)
    let port = try RunLoop.LocalMessagePort(name: workerName) { _, _, data in
        Array("done: \(String(decoding: data, as: UTF8.self))".utf8)
    }
    loop.add(port)
    try mainThread.send(id: checkin, data: Array(workerName.utf8), timeout: .milliseconds(100))
}

// MARK: Smaller things

private func askBlocking(_ port: RunLoop.RemoteMessagePort) throws -> [UInt8]? {
    try port.request(id: 1, data: [1], sendTimeout: .seconds(60), replyTimeout: .seconds(60))
}

private func askAndServe(_ port: RunLoop.RemoteMessagePort) throws -> [UInt8]? {
    try port.request(id: 1, data: [1], sendTimeout: .seconds(60), replyTimeout: .seconds(60), replyMode: "replies")
}

private func askAsTask(_ port: RunLoop.RemoteMessagePort) async throws -> [UInt8]? {
    try await port.request(id: 1, data: [1], timeout: .seconds(60))
}

private func describe(_ name: String) -> String {
    do throws(RunLoop.PortError) {
        let port = try RunLoop.RemoteMessagePort(name: name)
        try port.send(id: 1, timeout: .seconds(1))
        return "sent"
    } catch .notFound {
        return "nobody has the name"
    } catch .sendTimedOut {
        return "no room in time: it will not arrive"
    } catch {
        return "\(error)"
    }
}

/// A port that gets a file to write to.
private func logger(_ name: String) throws -> RunLoop.LocalMessagePort {
    try RunLoop.LocalMessagePort(
        name: name,
        descriptorHandler: { _, _, line, passed in
            guard passed.count == 1, let file = passed.take(0) else { return nil }
            defer { close(file) }
            let count = line.withUnsafeBytes { write(file, $0.baseAddress, $0.count) }
            return Array("\(count)".utf8)
        })
}

@Suite(.bounded, .tags(.threads)) struct `Code of the page on message ports` {
    @Test func `the check-in`() throws {
        let (mainName, workerName) = (freshName("main"), freshName("worker"))
        try onFreshThread { loop in
            let (port, thread, workers) = try spawnWorker(mainName, workerName)
            while workers.value.ports.isEmpty { _ = loop.run(for: patience, returnAfterSourceHandled: true) }
            let answer = try workers.value.ports[0].request(
                id: 1, data: Array("work".utf8), sendTimeout: .seconds(60), replyTimeout: .seconds(60))
            #expect(answer.map(text) == "done: work")
            thread.stop()
            #expect(thread.join(timeout: patience))
            port.invalidate()
        }
    }

    @Test func `requests and errors`() async throws {
        let served = try ServedPort { _, _, data in data }
        let port = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try await askAsTask(port) == [1])
        #expect(try askBlocking(port) == [1])
        #expect(try onFreshThread { _ in try askAndServe(port) } == [1])
        #expect(describe(served.name) == "sent")
        #expect(describe(freshName()) == "nobody has the name")
        try served.end()
    }

    @Test func `a descriptor arrives with a message`() throws {
        let name = freshName()
        let port = try logger(name)
        let running = RunningLoop { $0.add(port) }
        let pipe = Pipe()
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let count = try remote.request(
            id: 1, data: Array("a line".utf8), descriptors: [pipe.writeEnd], sendTimeout: .seconds(60), replyTimeout: .seconds(60))
        #expect(count.map(text) == "6" && pipe.readAll() == "a line")
        port.invalidate()
        try running.end()
    }
}
