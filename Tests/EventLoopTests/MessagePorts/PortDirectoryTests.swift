// Rules proved here (semantics 17.3, 17.17; docs/message-ports.md):
//  - Ports are in a directory that belongs to the user and that nobody else may enter. A directory with another owner or mode, or behind a
//    symbolic link, is not trusted.
//  - The directories are XDG_RUNTIME_DIR, its usual path and one in /tmp, in this order; an environment variable replaces them. Programs
//    with and without XDG_RUNTIME_DIR find each other and share one set of names.
//  - File names are short, plain and different. A lock whose file is removed no longer counts.
//    The wait for a lock has its limit even if another process has a lease on the file.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.bounded, .tags(.threads)) struct PortDirectoryTests {
    private func inTemporaryDirectory(_ body: (String) throws -> Void) rethrows {
        let path = makeTemporaryDirectory()
        defer {
            removeFlatDirectory(path + "/eventloop-ports")
            removeFlatDirectory(path + "/ports")
            removeFlatDirectory(path)
        }
        try body(path)
    }

    private func refusal(_ path: String, making: Bool = false, parentIsOurs: Bool = false) -> String {
        do throws(PortDirectory.Refusal) {
            _ = try PortDirectory(PortDirectory.Candidate(path: path, parentIsOurs: parentIsOurs), making: making)
            return "none"
        } catch {
            switch error {
            case .missing: return "missing"
            case .untrusted: return "untrusted"
            case .system(_, let errno): return "errno \(errno)"
            }
        }
    }

    @Test func `the directories are searched in order`() {
        typealias Candidate = PortDirectory.Candidate
        let usual = Candidate(path: "/run/user/7/eventloop-ports", parentIsOurs: true)
        let last = Candidate(path: "/tmp/eventloop-ports-7", parentIsOurs: false)
        let given = Candidate(path: "/x/eventloop-ports", parentIsOurs: true)
        #expect(PortDirectory.candidates(named: nil, runtimeDirectory: nil, user: 7) == [usual, last])
        #expect(PortDirectory.candidates(named: nil, runtimeDirectory: "/x", user: 7) == [given, usual, last])
        #expect(PortDirectory.candidates(named: nil, runtimeDirectory: "/run/user/7", user: 7) == [usual, last])
        // "All paths set in these environment variables must be absolute. ... should consider the path invalid and ignore it."
        #expect(PortDirectory.candidates(named: nil, runtimeDirectory: "x", user: 7) == [usual, last])
        #expect(PortDirectory.candidates(named: "", runtimeDirectory: "", user: 7) == [usual, last])
        #expect(PortDirectory.candidates(named: "/y", runtimeDirectory: "/x", user: 7) == [Candidate(path: "/y", parentIsOurs: false)])
    }

    @Test func `a directory is created only on request, with rights only for its owner`() throws {
        inTemporaryDirectory { path in
            #expect(refusal(path + "/ports") == "missing")
            #expect(refusal(path + "/ports", making: true) == "none")
            var status = stat()
            #expect(stat(path + "/ports", &status) == 0 && status.st_mode & 0o777 == 0o700)
            #expect(refusal(path + "/none/ports", making: true) == "missing")
        }
    }

    @Test(arguments: ["", "./", "../"])
    func `a relative path is refused, and its directory is not created`(start: String) {
        let path = start + "eventloop-ports-of-\(getpid())"
        #expect(refusal(path, making: true) == "errno \(EINVAL)")
        #expect(access(path, F_OK) != 0)
    }

    @Test(arguments: [mode_t(0o701), 0o710, 0o770, 0o755, 0o777])
    func `a directory that other users may enter is not trusted`(mode: mode_t) throws {
        inTemporaryDirectory { path in
            #expect(mkdir(path + "/ports", 0o700) == 0 && chmod(path + "/ports", mode) == 0)
            #expect(refusal(path + "/ports", making: true) == "untrusted")
        }
    }

    @Test func `a symbolic link and a file are not trusted`() throws {
        inTemporaryDirectory { path in
            #expect(symlink(path, path + "/link") == 0)
            #expect(refusal(path + "/link", making: true) == "untrusted")
            close(open(path + "/file", O_CREAT | O_WRONLY, 0o600))
            #expect(refusal(path + "/file", making: true) == "untrusted")
        }
    }

    @Test func `neither another user's directory nor one inside it is trusted`() throws {
        let isRoot = geteuid() == 0
        inTemporaryDirectory { path in
            #expect(mkdir(path + "/ports", 0o700) == 0)
            if isRoot {
                #expect(chown(path + "/ports", 12_345, 12_345) == 0)
                #expect(refusal(path + "/ports", making: true) == "untrusted")
                #expect(chown(path + "/ports", 0, 0) == 0 && chown(path, 12_345, 12_345) == 0)
                #expect(refusal(path + "/ports", making: true, parentIsOurs: true) == "untrusted")
                #expect(chown(path, 0, 0) == 0)
            } else {
                #expect(refusal("/root", making: true) == "untrusted")
            }
            #expect(refusal(path + "/ports", parentIsOurs: true) == "none")
            #expect(chmod(path, 0o722) == 0)
            #expect(refusal(path + "/ports", parentIsOurs: true) == "untrusted")
        }
    }

    @Test func `both ends refuse a directory that is not trusted, with an error of their own`() throws {
        try inTemporaryDirectory { path in
            #expect(chmod(path, 0o755) == 0)
            let environment = ["EVENTLOOP_PORT_DIRECTORY=\(path)"]
            let server = try PeerProcess("serve", "name", environment: environment)
            let message = server.line() ?? ""
            #expect(message.contains("open to other users") && message.contains("EPERM"), "\(message)")
            #expect(try PeerProcess("ask", "name", "0", "", environment: environment).line() == "\(RunLoop.PortError.notPermitted)")
        }
    }

    @Test func `programs with and without XDG_RUNTIME_DIR find each other`() throws {
        // The common directories are shared with other programs. The test removes only those that it has created.
        let common = PortDirectory.candidates(named: nil, runtimeDirectory: nil, user: geteuid()).map(\.path)
        let missing = common.filter { access($0, F_OK) != 0 }
        defer { for path in missing where filesIn(path) == [".lock"] { removeFlatDirectory(path) } }
        try inTemporaryDirectory { path in
            let name = freshName("xdg")
            // Without the variable, or if it names no directory, the common directories are used.
            let without = try PeerProcess("serve", name, environment: [])
            try #require(without.line() == "ready")
            for environment in [["XDG_RUNTIME_DIR=\(path)"], ["XDG_RUNTIME_DIR=\(path)/none"], []] {
                #expect(try PeerProcess("ask", name, "0", "found", environment: environment).line() == "found", "\(environment)")
                #expect(
                    try PeerProcess("serve", name, environment: environment).line() == "\(RunLoop.PortError.nameInUse)", "\(environment)")
            }
            #expect(without.ended() == 0)
            let with = try PeerProcess("serve", name, environment: ["XDG_RUNTIME_DIR=\(path)"])
            try #require(with.line() == "ready")
            #expect(filesIn(path + "/eventloop-ports").contains(try PortName(name).fileName))
            #expect(try PeerProcess("ask", name, "0", "found", environment: ["XDG_RUNTIME_DIR=\(path)"]).line() == "found")
            #expect(with.ended() == 0)
            #expect(!filesIn(path + "/eventloop-ports").contains(try PortName(name).fileName))
        }
    }

    @Test(arguments: ["serve", "serve-without-main-thread"]) func `a directory may have a long path`(serve: String) throws {
        let base = makeTemporaryDirectory()
        let path = base + "/" + String(repeating: "long", count: 40)
        defer {
            removeFlatDirectory(path)
            removeFlatDirectory(base)
        }
        let environment = ["EVENTLOOP_PORT_DIRECTORY=\(path)"]
        let server = try PeerProcess(serve, "name", environment: environment)
        #expect(server.line() == "ready")
        #expect(try PeerProcess("ask", "name", "0", "found", environment: environment).line() == "found")
        #expect(server.ended() == 0)
        #expect(filesIn(path) == [".lock"])
    }

    @Test func `file names are short and plain`() throws {
        #expect(try PortName("com.myapp.MainThread").fileName == "com.myapp.MainThread")
        #expect(try PortName("../é").fileName == "%2e.%2f%c3%a9")
        let names = try [String(repeating: "x", count: 128), String(repeating: "x", count: 127), String(repeating: "/", count: 128)].map {
            try PortName($0).fileName
        }
        #expect(Set(names).count == 3 && names.allSatisfy { $0.utf8.count == 49 && !$0.contains("/") })
    }

    @Test func `one thread has the lock at a time, and a lock whose file is removed does not count`() throws {
        try inTemporaryDirectory { path in
            let directory = try PortDirectory(PortDirectory.Candidate(path: path + "/ports", parentIsOurs: false), making: true)
            let inside = Box(0)
            let threads = (0..<4).map { _ in
                plainThread {
                    for _ in 0..<50 {
                        let lock = try directory.lock(patience)
                        #expect(inside.increment() == 1)
                        inside.change { $0 -= 1 }
                        withExtendedLifetime(lock) {}
                    }
                }
            }
            for thread in threads { try thread.join() }
            // The file is removed while its lock is held, so the next lock is that of a new file.
            let held = try directory.lock()
            unlink(path + "/ports/.lock")
            let next = try directory.lock()
            withExtendedLifetime((held, next)) {}
        }
    }

    @Test func `a released lock is free, even if a forked child has a copy of its descriptor`() throws {
        try inTemporaryDirectory { path in
            let directory = try PortDirectory(PortDirectory.Candidate(path: path + "/ports", parentIsOurs: false), making: true)
            var copy: Int32 = -1
            do {
                let lock = try directory.lock()
                // Like fork, dup makes a descriptor that shares the open file.
                let identity = directory.identity(of: ".lock")
                let descriptor = try #require((0..<10_000).first { FileIdentity(of: $0) == identity })
                copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
                withExtendedLifetime(lock) {}
            }
            defer { close(copy) }
            #expect(copy >= 0)
            #expect(throws: Never.self) { try directory.lock() }
        }
    }

    @Test func `a lock on which another process has a lease counts as taken, and so the wait for it has its limit`() async {
        // In a process of its own: the kernel sends SIGIO to the holder of a lease, and the default action ends the process.
        await #expect(processExitsWith: .success) {
            signal(SIGIO, SIG_IGN)
            let path = makeTemporaryDirectory()
            defer { removeFlatDirectory(path) }
            let directory = try PortDirectory(PortDirectory.Candidate(path: path, parentIsOurs: false), making: false)
            withExtendedLifetime(try directory.lock()) {}
            let file = open(path + "/.lock", O_RDWR | O_CLOEXEC)
            let setLease = Int32(1_024)  // F_SETLEASE, which Glibc's overlay does not declare
            // Not every file system has leases.
            if fcntl(file, setLease, Int32(F_WRLCK)) == 0 {
                var failure: RunLoop.PortError?
                let took = ContinuousClock().measure {
                    do throws(RunLoop.PortError) { _ = try directory.lock(.milliseconds(200)) } catch { failure = error }
                }
                if case .system(_, ETIMEDOUT)? = failure {} else { Issue.record("\(String(describing: failure))") }
                // The kernel breaks a lease after 45 seconds (/proc/sys/fs/lease-break-time).
                #expect(took < .seconds(30))
            }
            close(file)
            #expect(throws: Never.self) { try directory.lock() }
        }
    }

    @Test func `a lock that is no regular file is refused`() throws {
        try inTemporaryDirectory { path in
            let directory = try PortDirectory(PortDirectory.Candidate(path: path + "/ports", parentIsOurs: false), making: true)
            #expect(mkfifo(path + "/ports/.lock", 0o600) == 0)
            let error = RunLoop.PortError.system(operation: "opening the lock \(path)/ports/.lock", errno: EINVAL)
            #expect(throws: error) { try directory.lock() }
        }
    }

    @Test func `a directory with several paths is one directory`() throws {
        try inTemporaryDirectory { path in
            let candidates = [path + "/ports", path + "/./ports", path + "//ports"].map {
                PortDirectory.Candidate(path: $0, parentIsOurs: true)
            }
            let name = try PortName("name")
            let (registration, listener) = try PortRegistration.take(name, backlog: 1, in: candidates)
            #expect(throws: RunLoop.PortError.nameInUse) { try PortRegistration.take(name, backlog: 1, in: candidates.reversed()) }
            registration.withdraw()
            close(listener)
        }
    }

    @Test func `no port takes a name while one of the directories cannot be opened, because the name may be in it`() throws {
        inTemporaryDirectory { path in
            let candidates = [path + "/ports", path + "/" + String(repeating: "x", count: 300)].map {
                PortDirectory.Candidate(path: $0, parentIsOurs: false)
            }
            do throws(RunLoop.PortError) {
                let (registration, listener) = try PortRegistration.take(try PortName("name"), backlog: 1, in: candidates)
                registration.withdraw()
                close(listener)
                Issue.record("the name was taken")
            } catch {
                if case .system(_, ENAMETOOLONG) = error {} else { Issue.record("\(error)") }
            }
        }
    }

    @Test func `the descriptor of an untrusted directory is closed once`() async {
        // In a separate process: a second close would close another thread's descriptor with the same number.
        await #expect(processExitsWith: .success) {
            let path = makeTemporaryDirectory()
            #expect(chmod(path, 0o755) == 0)
            let hasEnded = Box(false)
            let other = plainThread {
                var lost = 0
                while !hasEnded.value {
                    let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
                    if close(descriptor) != 0 { lost += 1 }
                }
                return lost
            }
            for _ in 0..<20_000 { _ = try? PortDirectory(PortDirectory.Candidate(path: path, parentIsOurs: false), making: false) }
            hasEnded.value = true
            let lost = try other.join()
            rmdir(path)
            exit(lost == 0 ? 0 : 1)
        }
    }
}

#endif
