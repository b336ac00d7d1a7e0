// Rules proved here (semantics 17.15):
//  - The lock of the ports' directory goes with the process that took it, also while a child of fork that it made meanwhile lives on.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop

@Suite(.bounded) struct ForkedPortTests {
    @Test func `the lock of a process that was killed is free, though a child that it forked then lives on`() async {
        await #expect(processExitsWith: .success) {
            let path = makeTemporaryDirectory()
            defer { removeFlatDirectory(path) }
            let directory = try PortDirectory(PortDirectory.Candidate(path: path, parentIsOurs: false), making: true)
            let (life, news) = (Pipe(), Pipe())
            for pipe in [life, news] { #expect(fcntl(pipe.readEnd, F_SETFL, 0) == 0) }
            let process = systemFork()
            if process == 0 {
                killLater(seconds: 600)
                let lock = try? directory.lock()
                let child = systemFork()
                if child == 0 {
                    killLater(seconds: 600)
                    news.write("+")
                    // Until the test has ended.
                    close(life.writeEnd)
                    var byte: UInt8 = 0
                    _exit(read(life.readEnd, &byte, 1) == 0 ? 0 : 1)
                }
                withExtendedLifetime(lock) { _ = kill(getpid(), SIGKILL) }
                _exit(1)
            }
            var status: Int32 = 0
            while waitpid(process, &status, 0) < 0 && errno == EINTR {}
            #expect(status & 0x7f == SIGKILL)
            // The child is there.
            var byte: UInt8 = 0
            #expect(read(news.readEnd, &byte, 1) == 1)
            #expect(throws: Never.self) { try directory.lock() }
            close(life.writeEnd)
        }
    }

    @Test func `a port in a child leaves the parent's alone, and has an engine of its own`() async {
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
