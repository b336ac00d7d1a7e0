// How clients get into a port, and who has to go when there is no room for another.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension PortServer {
    static let acceptsAtOnce = 16
    private static let evictionsAtOnce = 4
    private static let retryAfter = Duration.milliseconds(100)

    /// More than these, and a new one takes the place of an old one. Half of what the process may open is the program's.
    static func connectionLimit(openLimit: Int = sysconf(Int32(_SC_OPEN_MAX))) -> Int { min(512, max(8, openLimit / 2)) }

    func accept() {
        // The program may have changed it.
        let openLimit = sysconf(Int32(_SC_OPEN_MAX))
        // Closing is held up: further clients could use up all descriptors.
        if DescriptorCloser.pending > 2 * descriptorLimit { return pauseAccepting() }
        var evictions = 0
        for _ in 0..<Self.acceptsAtOnce {
            let descriptor = cplatform_accept_client(listener)
            if descriptor < 0 {
                if errno == EAGAIN { return }
                // A crowd of one process's connections must not keep all others out.
                if errno == EMFILE && evictions < Self.evictionsAtOnce && makeRoom(orNobody: true) {
                    evictions += 1
                    continue
                }
                if errno == EMFILE { hasRunShort() }
                return pauseAccepting()
            }
            guard let peer = PortPeer(of: descriptor), peer.isOurUser else {
                DescriptorCloser.end(descriptor)
                continue
            }
            if connections.count >= Self.connectionLimit(openLimit: openLimit) { _ = makeRoom(orNobody: false) }
            add(descriptor, peer, openLimit)
        }
    }

    private func add(_ descriptor: Int32, _ peer: PortPeer, _ openLimit: Int) {
        lastToken += 1
        let token = lastToken
        let isOpen = open.withLock { open in
            open?[token] = descriptor
            return open != nil
        }
        var set = set
        guard isOpen, cplatform_port_set_watch(&set, descriptor, token, Readiness.read.rawValue, true) == 0 else {
            open.withLock { $0?[token] = nil }
            DescriptorCloser.end(descriptor)
            return
        }
        let connection = ServedConnection(
            token: token, descriptor: descriptor, process: peer.process, maximumLength: maximumLength, scratch: scratch)
        connection.lastHeard = ticks
        // A new descriptor has the lowest number that is free.
        connection.isWary = Int(descriptor) + 2 * Int(CPLATFORM_PASSED_LIMIT) > openLimit
        connections[token] = connection
        // Most clients have sent something by the time they are let in.
        read(connection)
        settle(connection)
    }

    /// The process with the most connections loses one: a client that opens thousands drives out its own. First go those that have never sent a
    /// message, then those that were silent longest. With `orNobody` a process that has one only keeps it. False when nobody went.
    private func makeRoom(orNobody: Bool) -> Bool {
        var counts: [Int32: Int] = [:]
        for connection in connections.values { counts[connection.process, default: 0] += 1 }
        guard let most = counts.values.max(), most > 1 || !orNobody else { return false }
        let victim = connections.values.filter { counts[$0.process] == most }.min {
            ($0.hasSpoken ? 1 : 0, $0.lastHeard, $0.token) < ($1.hasSpoken ? 1 : 0, $1.lastHeard, $1.token)
        }
        if let victim { drop(victim) }
        return victim != nil
    }

    /// There are no descriptors, or there is no memory. The client waits in the kernel's queue; asking again at once would be a spin.
    private func pauseAccepting() {
        var set = set
        cplatform_port_set_forget(&set, listener)
        pausedUntil = clock().advanced(by: Self.retryAfter)
    }

    func resumeAccepting() {
        var set = set
        // Without memory for the watch the port would be deaf: it tries again.
        let isWatched = cplatform_port_set_watch(&set, listener, Self.listenerToken, Readiness.read.rawValue, true) == 0
        pausedUntil = isWatched ? nil : clock().advanced(by: Self.retryAfter)
    }
}
