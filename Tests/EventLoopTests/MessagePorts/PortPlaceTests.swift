// Rules proved here (semantics 17.3, 17.18, 17.24):
//  - A directory is opened once and then used through its descriptor, whatever its path leads to later. A path with a trailing slash or dot
//    does not lead through a symbolic link, and XDG_RUNTIME_DIR may not be one either.
//  - Another user's directory in /tmp does not affect names in the user's own directories.
//  - A port takes its name again if its file is removed, and retries if descriptors are short.
//  - To take a name over, only a socket is removed.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .tags(.threads)) struct PortPlaceTests {
    private typealias Candidate = PortDirectory.Candidate

    private func inTemporaryDirectory(_ body: (String) throws -> Void) rethrows {
        let path = makeTemporaryDirectory()
        defer {
            for name in ["ports", "moved", "runtime/eventloop-ports", "runtime"] { removeFlatDirectory(path + "/" + name) }
            removeFlatDirectory(path)
        }
        try body(path)
    }

    private func isTrusted(_ path: String, parentIsOurs: Bool = false) -> Bool {
        (try? PortDirectory(Candidate(path: path, parentIsOurs: parentIsOurs), making: true)) != nil
    }

    @Test(arguments: ["", "/", "//", "/.", "/./", "/.//./"])
    func `a symbolic link is not trusted, even with slashes or dots at its end`(end: String) {
        inTemporaryDirectory { path in
            #expect(mkdir(path + "/ports", 0o700) == 0 && symlink(path + "/ports", path + "/link") == 0)
            #expect(!isTrusted(path + "/link" + end))
            #expect(isTrusted(path + "/ports" + end))
        }
    }

    @Test(arguments: ["", "/", "/."])
    func `XDG_RUNTIME_DIR may not be a symbolic link`(end: String) {
        inTemporaryDirectory { path in
            #expect(mkdir(path + "/runtime", 0o700) == 0 && symlink(path + "/runtime", path + "/link") == 0)
            #expect(!isTrusted(path + "/link\(end)/eventloop-ports", parentIsOurs: true))
            #expect(filesIn(path + "/runtime") == [])
            #expect(isTrusted(path + "/runtime\(end)/eventloop-ports", parentIsOurs: true))
        }
    }

    @Test func `an open directory is used, whatever its path leads to later`() throws {
        try inTemporaryDirectory { path in
            let directory = try PortDirectory(Candidate(path: path + "/ports", parentIsOurs: false), making: true)
            #expect(rename(path + "/ports", path + "/moved") == 0 && mkdir(path + "/ports", 0o700) == 0)
            withExtendedLifetime(try directory.lock()) {}
            #expect(filesIn(path + "/moved") == [".lock"] && filesIn(path + "/ports") == [])
        }
    }

    @Test func `only the owner has rights on the socket of a port, whatever the umask`() async {
        // In a separate process, because the umask applies to the whole process.
        await #expect(processExitsWith: .success) {
            _ = umask(0)
            let name = freshName()
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
            var status = stat()
            let path = portDirectory + "/" + (try PortName(name).fileName)
            let isRight = lstat(path, &status) == 0 && status.st_mode & 0o7777 == 0o600
            port.invalidate()
            exit(isRight ? 0 : 1)
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root can create another user's directory"))
    func `another user's directory in /tmp does not turn notFound into notPermitted`() throws {
        try inTemporaryDirectory { path in
            let candidates = [
                Candidate(path: path + "/runtime/eventloop-ports", parentIsOurs: true),
                Candidate(path: path + "/ports", parentIsOurs: false),
            ]
            #expect(
                mkdir(path + "/runtime", 0o700) == 0 && mkdir(path + "/ports", 0o700) == 0 && chown(path + "/ports", 12_345, 12_345) == 0)
            let name = try PortName("nobody")
            // The directory does not exist yet, but the user could create it.
            #expect(throws: RunLoop.PortError.notFound) { try PortRegistration.find(name, timeout: .zero, in: candidates) }
            let (registration, listener) = try PortRegistration.take(try PortName("somebody"), backlog: 1, in: candidates)
            #expect(throws: RunLoop.PortError.notFound) { try PortRegistration.find(name, timeout: .zero, in: candidates) }
            registration.withdraw()
            close(listener)
            #expect(rmdir(path + "/none") != 0)
            let noPlace = [Candidate(path: path + "/none/eventloop-ports", parentIsOurs: true), candidates[1]]
            #expect(throws: RunLoop.PortError.notPermitted) { try PortRegistration.find(name, timeout: .zero, in: noPlace) }
        }
    }

    @Test func `a port whose file is removed takes its name again and keeps its clients`() throws {
        let served = try ServedPort { _, _, data in data }
        let old = try RunLoop.RemoteMessagePort(name: served.name)
        #expect(try old.ask(1, "before") == "before")
        for _ in 0..<3 {
            #expect(unlink(portDirectory + "/" + (try PortName(served.name).fileName)) == 0)
            try waitUntil("the port has its name again") { (try? RunLoop.RemoteMessagePort(name: served.name).ask(1, "new")) == "new" }
            #expect(try old.ask(1, "after") == "after")
        }
        #expect(throws: RunLoop.PortError.nameInUse) { try RunLoop.LocalMessagePort(name: served.name) { _, _, _ in nil } }
        try served.end()
        #expect(throws: RunLoop.PortError.notFound) { try RunLoop.RemoteMessagePort(name: served.name) }
    }

    @Test func `a port whose name another port has taken becomes invalid with a reason`() throws {
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in data }
        let ended = EventLoopTestSupport.Gate()
        port.onInvalidation { ended.open() }
        let client = try RunLoop.RemoteMessagePort(name: name)
        // The port is in no loop yet, so it does not take its name again.
        #expect(unlink(portDirectory + "/" + (try PortName(name).fileName)) == 0)
        let other = try ServedPort(name) { _, _, _ in [7] }
        let running = RunningLoop { $0.add(port) }
        ended.wait()
        #expect(port.failure == .system(operation: "keeping the name \"\(name)\"", errno: EADDRINUSE))
        #expect(!port.isValid && !client.isValid)
        #expect(try RunLoop.RemoteMessagePort(name: name).ask() == "\u{7}")
        try other.end()
        try running.end()
    }

    @Test func `a port that could not watch its file retries, and notices a removal after that`() async {
        // In a separate process, because it uses up all descriptors.
        await #expect(processExitsWith: .success) {
            let clock = RunLoop.ManualClock()
            let name = try PortName(freshName())
            let server = try PortServer(name, maximumLength: 100, clock: { clock.now })
            server.acceptor.unwatchName()
            let isRetrying = withoutFreeDescriptors {
                server.acceptor.checkName {}
                return server.acceptor.testsOnlyRetriesName && !server.hasLostName && !server.acceptor.isNameWatched
            }
            clock.advance(by: .seconds(1))
            _ = server.serve { _, _ in nil }
            let isWatched = !server.acceptor.testsOnlyRetriesName && !server.hasLostName && server.acceptor.isNameWatched
            let path = portDirectory + "/" + name.fileName
            unlink(path)
            _ = server.serve { _, _ in nil }
            let isBack = access(path, F_OK) == 0
            server.withdraw()
            server.end()
            exit(isRetrying && isWatched && isBack ? 0 : 1)
        }
    }

    @Test func `without a free descriptor a port does not conclude that its file is gone`() async {
        await #expect(processExitsWith: .success) {
            let (registration, listener) = try PortRegistration.take(try PortName(freshName()), backlog: 1)
            let failure = withoutFreeDescriptors { () -> RunLoop.PortError? in
                do throws(RunLoop.PortError) { return try registration.isInPlace ? nil : .notFound } catch { return error }
            }
            let isInPlace = try registration.isInPlace
            registration.withdraw()
            close(listener)
            if case .system(_, EMFILE)? = failure, isInPlace { exit(0) }
            exit(1)
        }
    }

    @Test(arguments: [false, true])
    func `a port whose directory is moved or removed is found in a new one`(isMoved: Bool) throws {
        try inTemporaryDirectory { path in
            let environment = ["EVENTLOOP_PORT_DIRECTORY=\(path)/ports"]
            let server = try PeerProcess("serve", "name", environment: environment)
            try #require(server.line() == "ready")
            if isMoved { #expect(rename(path + "/ports", path + "/moved") == 0) } else { removeFlatDirectory(path + "/ports") }
            try waitUntil("the port has its name again") { filesIn(path + "/ports").contains("name") }
            #expect(try PeerProcess("ask", "name", "0", "found", environment: environment).line() == "found")
            #expect(!filesIn(path + "/moved").contains("name"))
            #expect(server.ended() == 0)
            #expect(filesIn(path + "/ports") == [".lock"])
        }
    }

    @Test func `a file that is not a socket keeps its name and is not removed`() throws {
        let name = freshName()
        let path = portDirectory + "/" + (try PortName(name).fileName)
        for make in [{ close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)) }, { symlink("/nowhere", path) }, { mkfifo(path, 0o600) }] {
            #expect(make() == 0)
            do throws(RunLoop.PortError) {
                let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
                port.invalidate()
                Issue.record("the name was taken")
            } catch {
                guard case .system(let operation, EEXIST) = error, operation.contains("not a socket") else {
                    Issue.record("\(error)")
                    continue
                }
            }
            var status = stat()
            #expect(lstat(path, &status) == 0)
            #expect(throws: RunLoop.PortError.notFound) { try RunLoop.RemoteMessagePort(name: name) }
            unlink(path)
        }
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
        port.invalidate()
    }
}

#endif
