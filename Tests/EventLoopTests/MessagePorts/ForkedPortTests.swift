// Rules proved here (semantics 17.15):
//  - The lock of the ports' directory is released when its process ends, even if a child that it forked meanwhile lives on.
//  - A forked child can have its own ports, and does not affect those of the parent.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .tags(.memory)) struct ForkedPortTests {
    @Test func `the lock of a killed process is free, even if its forked child lives on`() async {
        await #expect(processExitsWith: .success) {
            let path = makeTemporaryDirectory()
            defer { removeFlatDirectory(path) }
            let directory = try PortDirectory(PortDirectory.Candidate(path: path, parentIsOurs: false), making: true)
            let (endOfTest, childIsReady) = (Pipe(), Pipe())
            for pipe in [endOfTest, childIsReady] { #expect(fcntl(pipe.readEnd, F_SETFL, 0) == 0) }
            let process = systemFork()
            if process == 0 {
                killLater(seconds: 600)
                let lock = try? directory.lock()
                let child = systemFork()
                if child == 0 {
                    killLater(seconds: 600)
                    childIsReady.write("+")
                    // Waits until the test has ended.
                    close(endOfTest.writeEnd)
                    var byte: UInt8 = 0
                    _exit(read(endOfTest.readEnd, &byte, 1) == 0 ? 0 : 1)
                }
                withExtendedLifetime(lock) { _ = kill(getpid(), SIGKILL) }
                _exit(1)
            }
            var status: Int32 = 0
            while waitpid(process, &status, 0) < 0 && errno == EINTR {}
            #expect(status & 0x7f == SIGKILL)
            var byte: UInt8 = 0
            #expect(read(childIsReady.readEnd, &byte, 1) == 1)
            #expect(throws: Never.self) { try directory.lock() }
            close(endOfTest.writeEnd)
        }
    }

    @Test func `a port in a forked child does not affect the parent's, and has its own engine`() async {
        await #expect(processExitsWith: .success) {
            let served = try ServedPort { _, _, data in data }
            let remote = try RunLoop.RemoteMessagePort(name: served.name)
            #expect(try remote.ask(0, "before") == "before")
            let end = inForkedChild {
                guard let own = try? ServedPort(handler: { _, _, data in data + data }) else { return 1 }
                guard let mine = try? RunLoop.RemoteMessagePort(name: own.name),
                    let theirs = try? RunLoop.RemoteMessagePort(name: served.name)
                else { return 2 }
                guard (try? mine.ask(0, "a")) == "aa", (try? theirs.ask(0, "b")) == "b" else { return 3 }
                remote.invalidate()
                served.port.invalidate()
                return (try? own.end()) == nil ? 4 : 0
            }
            #expect(end.status == 0, "\(end)")
            #expect(try remote.ask(0, "after") == "after")
            try served.end()
        }
    }
}

#endif
