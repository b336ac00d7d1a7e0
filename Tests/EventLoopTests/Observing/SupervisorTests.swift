// Rules proved here (Supervisor.swift, SupervisorNotifier.swift, SupervisorEnvironment.swift):
// - Notifications reach a socket with a path or an abstract name. Without a service manager nothing is sent, and nothing is kept.
// - A status is one line of at most 2,048 bytes. Other values cannot smuggle in an assignment.
// - Variables for another process, and empty ones, count as absent. A bad value is an error that names the variable and the value.
// - A child of fork notifies nobody.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopSupervisor

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct SupervisorTests {
    private static var kinds: [NotificationSocket.Kind] {
        #if os(Linux)
        NotificationSocket.Kind.allCases
        #else
        [.path]
        #endif
    }

    @Test(arguments: kinds)
    private func `notifications arrive at a path and at an abstract name`(kind: NotificationSocket.Kind) throws {
        let manager = NotificationSocket(kind)
        let supervisor = try manager.supervisor()
        #expect(supervisor.isPresent && supervisor.watchdogInterval == nil && supervisor.sockets.isEmpty)
        try supervisor.notifyReady()
        try supervisor.notify(status: "serving 3 clients")
        try supervisor.notifyReady(status: "again")
        try supervisor.notifyReloading()
        try supervisor.extendTimeout(by: .milliseconds(1_500))
        try supervisor.notify(["ERRNO": "2", "X_NAME": "a=b ü"])
        try supervisor.notifyStopping(status: "")
        let all = manager.received()
        #expect(all.count == 7)
        #expect(all.prefix(3) == ["READY=1", "STATUS=serving 3 clients", "READY=1\nSTATUS=again"])
        let reloading = all[3].split(separator: "\n")
        #expect(reloading.first == "RELOADING=1")
        let time = try #require(reloading.last?.split(separator: "=").last.flatMap { Int64($0) })
        #expect((0...RunLoop.Instant.now.nanoseconds / 1_000).contains(time))
        #expect(all.suffix(3) == ["EXTEND_TIMEOUT_USEC=1500000", "ERRNO=2\nX_NAME=a=b ü", "STOPPING=1\nSTATUS="])
    }

    @Test(arguments: [[:], ["NOTIFY_SOCKET": "", "WATCHDOG_USEC": "", "LISTEN_FDS": ""], ["WATCHDOG_USEC": "not even a number"]])
    func `without a service manager every call does nothing, and nothing is kept`(environment: [String: String]) throws {
        let supervisor = try RunLoop.Supervisor(environment: environment)
        #expect(!supervisor.isPresent && supervisor.watchdogInterval == nil && supervisor.sockets.isEmpty)
        #expect(supervisor.notifier == nil)
        try supervisor.notifyReady(status: "a")
        try supervisor.notifyReloading()
        try supervisor.notifyStopping()
        try supervisor.notify(status: "b")
        try supervisor.extendTimeout(by: .seconds(1))
        try supervisor.notify(["not a name": "\n"])
        let running = RunningLoop()
        try supervisor.watch(running.loop)
        #expect(!supervisor.pulse.hasThread)
        supervisor.stopWatching(running.loop)
        supervisor.stopWatching()
        try running.end()
    }

    @Test func `this process has no service manager in its tests, and reading its environment says so`() throws {
        if getenv("NOTIFY_SOCKET") != nil { return }
        #expect(try !RunLoop.Supervisor().isPresent)
    }

    @Test func `a status is one line, and is cut between characters`() throws {
        let manager = NotificationSocket()
        let supervisor = try manager.supervisor()
        try supervisor.notify(status: "a\nSTOPPING=1\r\0\u{1B}[31mb\u{85}")
        #expect(try manager.receive() == "STATUS=a STOPPING=1   [31mb ")
        try supervisor.notify(status: "x" + String(repeating: "ü", count: 3_000))
        #expect(try manager.receive() == "STATUS=x" + String(repeating: "ü", count: 1_023))
    }

    @Test(arguments: ["", "A B", "a=b", "A\nB", "ü"])
    func `an assignment whose name could be something else is refused`(name: String) throws {
        let supervisor = try NotificationSocket().supervisor()
        let error = #expect(throws: RunLoop.SupervisorError.self) { try supervisor.notify([name: "1"]) }
        #expect("\(try #require(error))".contains("no name of a variable"))
    }

    @Test(arguments: ["a\nSTOPPING=1", "\n", "a\0", String(repeating: "a", count: 4_096)])
    func `a value with a line break, or one that is too long, is refused`(value: String) throws {
        let manager = NotificationSocket()
        let supervisor = try manager.supervisor()
        #expect(throws: RunLoop.SupervisorError.self) { try supervisor.notify(["A": value]) }
        #expect(manager.received().isEmpty)
        // The longest that systemd reads.
        try supervisor.notify(["A": String(repeating: "a", count: 4_094)])
        #expect(try manager.receive().utf8.count == 4_096)
    }

    @Test func `an error names the socket and what the system says`() throws {
        let folder = SocketFolder()
        let supervisor = try RunLoop.Supervisor(environment: ["NOTIFY_SOCKET": folder.file()])
        let error = #expect(throws: RunLoop.SupervisorError.self) { try supervisor.notifyReady() }
        #expect("\(try #require(error))" == "notify \(folder.file()): No such file or directory (ENOENT)")
    }

    @Test func `a service manager that reads nothing costs a sign of life no time, and a notification a second`() throws {
        let manager = NotificationSocket()
        let notifier = try #require(try manager.supervisor().notifier)
        var sent = 0
        let error = #expect(throws: RunLoop.SupervisorError.self) {
            while true {  // ends: the queue is finite
                try notifier.send(["WATCHDOG=1"], waits: false)
                sent += 1
            }
        }
        #expect(error == .system(operation: "notify \(manager.name)", errno: EAGAIN))
        #expect(throws: RunLoop.SupervisorError.self) { try notifier.send(["READY=1"]) }
        #expect(manager.received().count == sent)
        try notifier.send(["READY=1"])
    }

    #if os(Linux)
    @Test func `signals do not lengthen a notification that has no room`() async {
        await #expect(processExitsWith: .success) {
            let manager = NotificationSocket()
            let notifier = try #require(try manager.supervisor().notifier)
            while (try? notifier.send(["WATCHDOG=1"], waits: false)) != nil {}  // ends: the queue is finite
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in }  // without SA_RESTART: calls are interrupted
            sigaction(SIGUSR1, &action, nil)
            let (handle, isOver) = (Box<UInt>(0), Box(false))
            let sender = plainThread {
                handle.value = UInt(pthread_self())
                #expect(throws: RunLoop.SupervisorError.self) { try notifier.send(["READY=1"]) }
                isOver.value = true
            }
            try waitUntil { handle.value != 0 }
            // They come every few milliseconds. If each of them started the second again, it would never end.
            try waitUntil("the notification gives up") {
                pthread_kill(pthread_t(handle.value), SIGUSR1)
                return isOver.value
            }
            try sender.join()
        }
    }
    #endif

    struct Wrong: Sendable, CustomTestStringConvertible {
        let variables: [String: String]
        let name: String
        var testDescription: String { variables.sorted { $0.key < $1.key }.map { "\($0)=\($1.prefix(20))" }.joined(separator: " ") }

        init(_ name: String, _ value: String, _ others: [String: String] = [:]) {
            self.name = name
            variables = others.merging([name: value]) { $1 }
        }
    }

    private static let own = "\(getpid())"

    @Test(arguments: [
        Wrong("NOTIFY_SOCKET", "relative"), Wrong("NOTIFY_SOCKET", "vsock:2:1234"), Wrong("NOTIFY_SOCKET", "@"),
        Wrong("NOTIFY_SOCKET", "/" + String(repeating: "a", count: 200)), Wrong("NOTIFY_SOCKET", "@" + String(repeating: "a", count: 200)),
        Wrong("WATCHDOG_USEC", "0", ["NOTIFY_SOCKET": "/a"]), Wrong("WATCHDOG_USEC", "1s", ["NOTIFY_SOCKET": "/a"]),
        Wrong("WATCHDOG_USEC", "-1", ["NOTIFY_SOCKET": "/a"]), Wrong("WATCHDOG_USEC", "+1", ["NOTIFY_SOCKET": "/a"]),
        Wrong("WATCHDOG_USEC", "99999999999999999999", ["NOTIFY_SOCKET": "/a"]),
        Wrong("WATCHDOG_PID", "me", ["NOTIFY_SOCKET": "/a", "WATCHDOG_USEC": "1"]),
        Wrong("LISTEN_PID", "me", ["LISTEN_FDS": "1"]), Wrong("LISTEN_FDS", "many", ["LISTEN_PID": own]),
        Wrong("LISTEN_FDS", "4294967296", ["LISTEN_PID": own]),
        Wrong("LISTEN_FDNAMES", "a:b", ["LISTEN_PID": own, "LISTEN_FDS": "1"]),
        Wrong("LISTEN_FDNAMES", ":", ["LISTEN_PID": own, "LISTEN_FDS": "1"]),
    ])
    func `a bad value is an error that names the variable and its value`(wrong: Wrong) throws {
        let error = #expect(throws: RunLoop.SupervisorError.self) { try RunLoop.Supervisor(environment: wrong.variables) }
        guard case .badVariable(let name, let value, let reason) = try #require(error) else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(name == wrong.name && value == wrong.variables[name] && !reason.isEmpty)
        #expect("\(try #require(error))".hasPrefix("environment variable \(name)=\(String(reflecting: value)): "))
    }

    @Test func `a combining mark behind a separator belongs to the name`() throws {
        #if os(Linux)
        let notify = try SupervisorEnvironment(["NOTIFY_SOCKET": "@\u{301}a"], process: 1)
        #expect(notify.notifyAddress == .unix(path: "\0\u{301}a"))
        #endif
        let variables = ["LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:\u{301}b"]
        let listen = try SupervisorEnvironment(variables, process: 1)
        #expect(listen.descriptorNames.map { Array($0.utf8) } == ["a", "\u{301}b"].map { Array($0.utf8) })
    }

    @Test func `variables for another process, and those that lack their counterpart, count as absent`() throws {
        let notify = ["NOTIFY_SOCKET": "/a"]
        func interval(_ variables: [String: String]) throws -> Duration? {
            try RunLoop.Supervisor(environment: notify.merging(variables) { $1 }).watchdogInterval
        }
        #expect(try interval(["WATCHDOG_USEC": "1500"]) == .microseconds(1_500))
        #expect(try interval(["WATCHDOG_USEC": "1500", "WATCHDOG_PID": Self.own]) == .microseconds(1_500))
        #expect(try interval(["WATCHDOG_USEC": "1500", "WATCHDOG_PID": "1"]) == nil)
        #expect(try interval(["WATCHDOG_USEC": "\(UInt64.max)"]) == nil)
        #expect(try interval(["WATCHDOG_USEC": "\(UInt64.max - 1)"]).map { $0 > .seconds(1_000_000) } == true)
        #expect(try interval(["WATCHDOG_PID": Self.own]) == nil)
        #expect(try RunLoop.Supervisor(environment: ["WATCHDOG_USEC": "1500"]).watchdogInterval == nil)
        for variables in [["LISTEN_FDS": "3"], ["LISTEN_PID": Self.own], ["LISTEN_FDS": "3", "LISTEN_PID": "1"], ["LISTEN_FDNAMES": "a"]] {
            #expect(try RunLoop.Supervisor(environment: variables).sockets.isEmpty)
        }
        #expect(try RunLoop.Supervisor(environment: ["LISTEN_FDS": "0", "LISTEN_PID": Self.own]).sockets.isEmpty)
    }

    @Test func `a child of fork notifies nobody, and its signs of life are the parent's`() async {
        await #expect(processExitsWith: .success) {
            let manager = NotificationSocket()
            let supervisor = try manager.supervisor(watchdog: .seconds(3_600))
            let running = RunningLoop()
            try supervisor.watch(running.loop)
            let end = inForkedChild {
                do {
                    try supervisor.notifyReady()
                    try supervisor.notify(["not a name": "\n"])
                    try supervisor.watch(running.loop)
                    supervisor.stopWatching(running.loop)
                    supervisor.stopWatching()
                } catch { return 1 }
                return 0
            }
            #expect(end.signal == 0 && end.status == 0, "\(end.errors)")
            #expect(manager.received().allSatisfy { $0 == "WATCHDOG=1" })
            #expect(supervisor.pulse.hasThread)
            try running.end()
        }
    }

    @Test func `the variables are removed from the environment if the program wants it`() async {
        await #expect(processExitsWith: .success) {
            let manager = NotificationSocket()
            setenv("NOTIFY_SOCKET", manager.name, 1)
            setenv("WATCHDOG_USEC", "2000000", 1)
            let kept = try RunLoop.Supervisor()
            #expect(kept.isPresent && getenv("NOTIFY_SOCKET") != nil)
            let supervisor = try RunLoop.Supervisor(unsettingEnvironment: true)
            #expect(supervisor.isPresent && supervisor.watchdogInterval == .seconds(2))
            for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] { #expect(getenv(name) == nil) }
            #expect(try !RunLoop.Supervisor().isPresent)
        }
    }
}
