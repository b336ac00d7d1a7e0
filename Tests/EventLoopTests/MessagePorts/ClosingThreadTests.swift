// Rules proved here (semantics 17.22), each in a process of its own, because no thread can be started in it meanwhile:
//  - What other processes sent is closed, although no further thread can be started.
//  - A close that blocks leaves a thread for what another process sends.
//  - Without a first thread for closing there is no port, and its name stays free.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .tags(.threads)) struct ClosingThreadTests {
    @Test func `what other processes sent is closed although no thread can be started any more`() async {
        await #expect(processExitsWith: .success) {
            let port = try RunLoop.LocalMessagePort(name: freshName()) { _, _, _ in nil }
            let pair = SocketPair()
            try withoutNewThreads {
                // More than a process may have closed at a time.
                for _ in 0...DescriptorCloser.threadLimitPerProcess {
                    DescriptorCloser.close(fcntl(pair.near, F_DUPFD_CLOEXEC, 0), from: 1)
                }
                port.invalidate()
                try waitUntil("they are closed") { DescriptorCloser.pending == 0 }
            }
        }
    }

    @Test func `a close that blocks leaves a thread for another process's descriptors, also if none can be started by then`() async {
        await #expect(processExitsWith: .success) {
            let lingering = try LingeringSocket()
            let lastCopy = fcntl(lingering.descriptor, F_DUPFD_CLOEXEC, 0)
            lingering.closeOwnDescriptor()
            DescriptorCloser.close(lastCopy, from: 1)
            try waitUntil("it is being closed") { DescriptorCloser.testsOnlyClosing == 1 }
            let pair = SocketPair()
            try withoutNewThreads {
                DescriptorCloser.close(fcntl(pair.near, F_DUPFD_CLOEXEC, 0), from: 2)
                try waitUntil("the other process's descriptor is closed") { DescriptorCloser.pending(from: 2) == 0 }
            }
            #expect(DescriptorCloser.pending(from: 1) == 1)
            withExtendedLifetime(lingering) {}
        }
    }

    @Test func `a port for which no closing thread can be started is not made, and its name stays free`() async {
        await #expect(processExitsWith: .success) {
            let name = freshName()
            let code = withoutNewThreads { () -> Int32? in
                do throws(RunLoop.PortError) {
                    _ = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
                    return nil
                } catch {
                    guard case .system(_, let errno) = error else { return nil }
                    return errno
                }
            }
            #expect(code == EAGAIN)
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
            #expect(port.isValid)
        }
    }
}

#endif
