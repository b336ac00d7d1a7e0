// The code of docs/guide-listings.md, compiled and run.

import EventLoop
import EventLoopMessagePorts
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Listing 3-16: a port with a name, on the calling thread's loop.
func registerPort(name: String, answer: @escaping @Sendable (Int32, [UInt8]) -> [UInt8]?) throws -> RunLoop.LocalMessagePort {
    let port = try RunLoop.LocalMessagePort(name: name) { _, id, data in answer(id, data) }
    RunLoop.current.add(port)
    return port
}

@Suite struct DocumentedGuideListings {
    @Test func `Listing 3-16: a port is found by its name`() throws {
        try onFreshThread { loop in
            let (name, received) = ("documented-\(getpid())", Box<[UInt8]>([]))
            let port = try registerPort(name: name) { _, data in
                received.value = data
                return nil
            }
            try RunLoop.RemoteMessagePort(name: name).send(id: 1, data: [7], timeout: patience)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(received.value == [7])
            port.invalidate()
        }
    }
}
