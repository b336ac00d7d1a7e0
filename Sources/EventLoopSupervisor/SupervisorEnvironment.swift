// The environment variables that a service manager sets for a service: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).

internal import EventLoop
internal import EventLoopLibC

/// The variables of systemd's protocols, parsed. A variable that is for another process counts as absent.
struct SupervisorEnvironment {
    static let variables = [
        "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
    ]

    /// Where notifications go; nil if nobody expects any.
    var notifyAddress: RunLoop.SocketAddress?
    /// How long the service manager waits for a sign of life; nil if it does not wait.
    var watchdogInterval: Duration?
    /// The names of the inherited descriptors, in the order of their numbers. The first has the number 3.
    var descriptorNames: [String] = []

    /// Reads the variables of this process. Other threads must not change the environment meanwhile.
    static func ofThisProcess() -> [String: String] {
        var found: [String: String] = [:]
        for name in variables { found[name] = getenv(name).map { String(cString: $0) } }
        return found
    }

    init(_ variables: [String: String], process: Int32) throws(RunLoop.SupervisorError) {
        notifyAddress = try Self.notifyAddress(variables)
        watchdogInterval = notifyAddress == nil ? nil : try Self.watchdogInterval(variables, process)
        descriptorNames = try Self.descriptorNames(variables, process)
    }

    private static func notifyAddress(_ variables: [String: String]) throws(RunLoop.SupervisorError) -> RunLoop.SocketAddress? {
        guard let text = variables["NOTIFY_SOCKET"], !text.isEmpty else { return nil }
        let address: RunLoop.SocketAddress
        switch text.utf8.first {
        case UInt8(ascii: "/"): address = .unix(path: text)
        // The first byte, not the first character, to which a combining mark may belong.
        case UInt8(ascii: "@"): address = .unix(path: "\0" + String(decoding: text.utf8.dropFirst(), as: UTF8.self))
        default:
            let reason = "neither a path nor an abstract name; other kinds of address are not supported"
            throw .badVariable(name: "NOTIFY_SOCKET", value: text, reason: reason)
        }
        do throws(RunLoop.SourceError) { _ = try address.native() } catch {
            throw .badVariable(name: "NOTIFY_SOCKET", value: text, reason: "cannot be the address of a socket: its length is wrong")
        }
        return address
    }

    private static func watchdogInterval(_ variables: [String: String], _ process: Int32) throws(RunLoop.SupervisorError) -> Duration? {
        guard let text = variables["WATCHDOG_USEC"], !text.isEmpty else { return nil }
        // sd_watchdog_enabled(3): a missing WATCHDOG_PID means that the variable is for this process.
        if let owner = variables["WATCHDOG_PID"], !owner.isEmpty, try number("WATCHDOG_PID", owner) != UInt64(process) { return nil }
        let microseconds = try number("WATCHDOG_USEC", text)
        // systemd's infinity.
        if microseconds == .max { return nil }
        if microseconds == 0 { throw .badVariable(name: "WATCHDOG_USEC", value: text, reason: "no length of time") }
        return .microseconds(Int64(clamping: microseconds))
    }

    private static func descriptorNames(_ variables: [String: String], _ process: Int32) throws(RunLoop.SupervisorError) -> [String] {
        // sd_listen_fds(3): the descriptors are for the process that LISTEN_PID names; without it they are for nobody.
        guard let count = variables["LISTEN_FDS"], !count.isEmpty, let owner = variables["LISTEN_PID"], !owner.isEmpty,
            try number("LISTEN_PID", owner) == UInt64(process)
        else { return [] }
        let wanted = try number("LISTEN_FDS", count)
        guard wanted <= 65_536 else { throw .badVariable(name: "LISTEN_FDS", value: count, reason: "more descriptors than there can be") }
        guard let text = variables["LISTEN_FDNAMES"], !text.isEmpty else {
            // The name that sd_listen_fds_with_names(3) gives them.
            return Array(repeating: "unknown", count: Int(wanted))
        }
        let parts = text.utf8.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        let names = parts.map { String(decoding: $0, as: UTF8.self) }
        if names.count != Int(wanted) {
            throw .badVariable(name: "LISTEN_FDNAMES", value: text, reason: "\(names.count) names for \(wanted) descriptors")
        }
        return names
    }

    private static func number(_ name: String, _ text: String) throws(RunLoop.SupervisorError) -> UInt64 {
        // `UInt64` also takes a plus sign.
        guard text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let number = UInt64(text) else {
            throw .badVariable(name: name, value: text, reason: "not a number")
        }
        return number
    }
}
