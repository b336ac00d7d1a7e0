// Every error describes itself (API): the operation, the descriptor, number, address or name, and the system's message with its symbol.

import EventLoop
import EventLoopMessagePorts
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct ErrorDescriptionTests {
    @Test func `a listener's error names the operation, the address and the system's message`() throws {
        let first = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, _, _ in }
        let address = try #require(first.localAddress)
        do {
            _ = try RunLoop.SocketSource(listeningOn: address) { _, _, _ in }
            Issue.record("two listeners have one port")
        } catch { #expect("\(error)" == "bind \(address): \(String(cString: strerror(EADDRINUSE))) (EADDRINUSE)") }
        first.invalidate()
    }

    @Test func `a source's error names its descriptor, signal, process or address`() throws {
        let errors: [(RunLoop.SourceError, [String])] = [
            (.badDescriptor(17), ["descriptor 17", "EBADF"]), (.notPollable(18), ["descriptor 18", "EPERM"]),
            (.badSignal(99), ["signal 99", "EINVAL"]), (.badProcess(4_711), ["process 4711", "ECHILD"]),
            (.badAddress("example.org:80"), ["\"example.org:80\"", "not numeric"]),
            (.system(operation: "bind [::1]:80", errno: EACCES), ["bind [::1]:80: Permission denied (EACCES)"]),
        ]
        for (error, parts) in errors {
            for part in parts { #expect("\(error)".contains(part), "\(error)") }
        }
    }

    @Test func `an errno without a symbol is described by its number`() {
        #expect("\(RunLoop.SourceError.system(operation: "waiting", errno: 9_999))".hasSuffix("(errno 9999)"))
    }

    @Test func `a port's error names its operation or its name`() throws {
        do {
            _ = try RunLoop.LocalMessagePort(name: "a\0\nb") { _, _, data in data }
            Issue.record("a port has the name")
        } catch { #expect("\(error)" == "\"a\\0\\nb\" cannot be the name of a message port") }
        let refusal = RunLoop.PortError.system(operation: "connecting to /run/ports/a", errno: ECONNREFUSED)
        #expect("\(refusal)" == "connecting to /run/ports/a: Connection refused (ECONNREFUSED)")
        #expect("\(RunLoop.PortError.messageTooLarge(70_000))".contains("70000 bytes"))
        #expect("\(RunLoop.PortError.protocolViolation("no end"))".hasSuffix("no end"))
    }

    @Test func `the errors without a value are sentences`() {
        let errors: [any Error] = [
            RunLoop.PortError.invalidPort, RunLoop.PortError.becameInvalid, RunLoop.PortError.sendTimedOut, RunLoop.PortError.replyTimedOut,
            RunLoop.PortError.notFound, RunLoop.PortError.nameInUse, RunLoop.PortError.notPermitted, TaskTimedOut(), RunLoopEnded(),
            PerformTimedOut(),
        ]
        for error in errors { #expect("\(error)".split(separator: " ").count > 4, "\(error)") }
        #expect(Set(errors.map { "\($0)" }).count == errors.count)
    }

    @Test func `every case of every error is one line, and an errno comes with the system's message and its name`() {
        let code = ECONNRESET
        let sources: [RunLoop.SourceError] = [
            .badDescriptor(17), .notPollable(17), .badSignal(17), .badProcess(17), .badAddress("a\nb"),
            .loopEnded, .system(operation: "bind 17", errno: code),
        ]
        for error in sources {
            switch error {  // a new case must be added here
            case .badDescriptor, .notPollable, .badSignal, .badProcess: #expect("\(error)".contains("17") && "\(error)".contains("(E"))
            case .badAddress: #expect("\(error)".contains(#""a\nb""#))
            case .loopEnded: #expect("\(error)" == "the run loop has ended")
            case .system(let operation, let errno):
                #expect("\(error)" == "\(operation): \(String(cString: strerror(errno))) (ECONNRESET)")
            }
            #expect(!"\(error)".contains("\n"), "\(error)")
        }
        let ports: [RunLoop.PortError] = [
            .invalidPort, .becameInvalid, .sendTimedOut, .replyTimedOut, .notFound, .nameInUse, .notPermitted, .badName("a\nb"),
            .messageTooLarge(17), .protocolViolation("17"), .system(operation: "sendmsg 17", errno: code),
        ]
        for error in ports {
            switch error {
            case .invalidPort, .becameInvalid, .sendTimedOut, .replyTimedOut, .notFound, .nameInUse, .notPermitted:
                #expect("\(error)".split(separator: " ").count > 4)
            case .badName: #expect("\(error)".contains(#""a\nb""#))
            case .messageTooLarge, .protocolViolation: #expect("\(error)".contains("17"))
            case .system(let operation, let errno):
                #expect("\(error)" == "\(operation): \(String(cString: strerror(errno))) (ECONNRESET)")
            }
            #expect(!"\(error)".contains("\n"), "\(error)")
        }
    }

    @Test func `the errors of a connection to a message port name the port`() throws {
        let name = freshName()
        let served = try ServedPort(name) { _, _, data in data }
        let remote = try RunLoop.RemoteMessagePort(name: name)
        do {
            try remote.send(id: 1, descriptors: [-1], timeout: .zero)
            Issue.record("a descriptor that is not open was sent")
        } catch {
            #expect("\(error)" == "sendmsg to the message port \"\(name)\": \(String(cString: strerror(EBADF))) (EBADF)")
        }
        try served.end()
    }
}
