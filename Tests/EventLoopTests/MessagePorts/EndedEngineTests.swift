// Rule proved here (semantics 17.29): if a closure of the program ends the library's thread, the connections that it watches become invalid, and
// the next port starts another thread. The other closures are called all the same.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Returns nothing, so that no code behind a call of it is unreachable.
private func endThread() { pthread_exit(nil) }

/// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
@Suite(.bounded, .enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer)) struct EndedEngineTests {
    @Test func `a closure that ends the library's thread makes its connections invalid, and the next port has another thread`() async {
        // In a process of its own, because the thread is the process's.
        await #expect(processExitsWith: .success) {
            let ends = [connectedSockets(), connectedSockets(), connectedSockets()]
            let engine = try PortEngine.shared()
            let connections = try ends.map { try RemoteConnection($0.0, engine: engine, maximumLength: 100) }
            let waiter = ReplyWaiter(.task)
            try connections[1].startRequest(waiter, id: 1, data: [], descriptors: [])
            // Both ways out of a callout: the first while the thread runs, the other as it ends.
            let closures = Box(0)
            for connection in [connections[0], connections[2]] {
                connection.onInvalidation {
                    closures.increment()
                    endThread()
                }
            }
            close(ends[0].1)
            try waitUntil("the request ends") { connections[1].state.withLock { _ in waiter.result != nil } }
            var error: RunLoop.PortError?
            if case .failure(let failure)? = connections[1].state.withLock({ _ in waiter.result }) { error = failure }
            #expect(error == .becameInvalid)
            try waitUntil("the last connection ends") { closures.value == 2 }
            let next = try PortEngine.shared()
            #expect(next !== engine)
            let served = connectedSockets()
            let connection = try RemoteConnection(served.0, engine: next, maximumLength: 100)
            let isInvalid = Box(false)
            connection.onInvalidation { isInvalid.value = true }
            close(served.1)
            try waitUntil("the other thread notices the end") { isInvalid.value }
        }
    }

    @Test func `each closure of a connection that becomes invalid is called, although each ends the thread`() throws {
        let ends = connectedSockets()
        defer { close(ends.1) }
        let connection = try RemoteConnection(ends.0, engine: .shared(), maximumLength: 100)
        let closures = Box(0)
        for _ in 1...3 {
            connection.onInvalidation {
                closures.increment()
                endThread()
            }
        }
        plainThread { connection.end(.becameInvalid) }.detach()
        try waitUntil("each is called") { closures.value == 3 }
    }
}
