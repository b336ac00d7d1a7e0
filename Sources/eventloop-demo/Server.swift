// The server: one thread, one run loop and one evhttp for each of the listening sockets.

import EventLoop
import Synchronization

final class Server: Sendable {
    let port: UInt16
    private let group: RunLoopThreadGroup
    private let roster: Roster

    var url: String { "http://127.0.0.1:\(port)/" }

    /// The server loops by number, for reports. Thread-safe.
    var loops: [RunLoop] { roster.loops }

    /// - Parameter report: makes the text of /statistics from the given loops, on a server loop.
    init(port: UInt16, loops count: Int, inbox: Inbox, report: @escaping @Sendable ([RunLoop]) -> String) throws(DemoError) {
        // On this thread, before any other starts, so that errors of the kernel are reported at once.
        let (descriptors, port) = try Sockets.listeners(port: port, count: count)
        self.port = port
        let roster = Roster(listeners: descriptors)
        self.roster = roster
        do {
            group = try RunLoopThreadGroup(
                count: count, name: "http",
                setup: { loop in try roster.open(on: loop, inbox: inbox) { report(roster.loops) } },
                teardown: { loop in roster.close(on: loop) })
        } catch {
            roster.closeUnusedListeners()
            throw error as? DemoError
                ?? DemoError(sentence: "cannot start \(Format.count(count, "server loop")): \(Sockets.describe(error))")
        }
    }

    /// Stops and joins the threads; each frees its evhttp. Returns false if one of them is stuck.
    func stop() -> Bool {
        group.shutdown(timeout: .seconds(5)).isEmpty
    }
}

/// Which host is on which loop. The numbers follow the order in which the threads are set up, like their names. Only the displayed names
/// depend on it.
private final class Roster: Sendable {
    private struct State {
        var unusedListeners: [Int32]
        /// In the order of their numbers.
        var hosts: [(number: Int, loop: RunLoop, host: LoopBound<HTTPHost>)] = []
        var nextNumber = 0
    }
    private let state: Mutex<State>

    init(listeners: [Int32]) {
        state = Mutex(State(unusedListeners: listeners))
    }

    var loops: [RunLoop] { state.withLock { $0.hosts.map(\.loop) } }

    func open(on loop: RunLoop, inbox: Inbox, report: @escaping @Sendable () -> String) throws(DemoError) {
        let (listener, number) = state.withLock { state in
            defer { state.nextNumber += 1 }
            return (state.unusedListeners.removeLast(), state.nextNumber)
        }
        do throws(DemoError) {
            let host = try HTTPHost.open(number: number, loop: loop, listeningOn: listener, inbox: inbox, report: report)
            let bound = LoopBound(host)
            state.withLock { state in
                let place = state.hosts.count { $0.number < number }
                state.hosts.insert((number, loop, bound), at: place)
            }
        } catch {
            state.withLock { $0.unusedListeners.append(listener) }
            throw error
        }
    }

    func close(on loop: RunLoop) {
        let host = state.withLock { state in state.hosts.first { $0.loop === loop }?.host }
        host?.value.close()
        state.withLock { state in state.hosts.removeAll { $0.loop === loop } }
    }

    func closeUnusedListeners() {
        let listeners = state.withLock { state in
            defer { state.unusedListeners = [] }
            return state.unusedListeners
        }
        for listener in listeners { Sockets.release(listener) }
    }
}
