// The server: one thread, one run loop and one evhttp for each of the listening sockets.
//
// Lifecycle of a host: its thread makes it in `setup`, and keeps it as its context. When the thread is stopped, the host drains, and
// `teardown` frees its evhttp, on the thread.

import EventLoop

final class Server: Sendable {
    let port: UInt16
    /// By number. Any thread may read them.
    let counters: [HostCounters]
    private let group: RunLoopThreadGroup

    var url: String { "http://127.0.0.1:\(port)/" }

    /// The server loops by number, for reports. Thread-safe.
    var loops: [RunLoop] { group.runLoops }

    /// What the threads take while they start, one after another.
    private struct Starting {
        var unusedListeners: [Int32]
        var counters: [HostCounters] = []
    }

    /// - Parameter drainLimit: for how long a stopped server answers the requests in progress.
    init(port: UInt16, loops count: Int, drainLimit: Duration, inbox: Inbox?, pages: Pages) throws(DemoError) {
        // On this thread, before any other starts, so that errors of the kernel are reported at once.
        let (descriptors, port) = try Listeners.make(port: port, count: count)
        self.port = port
        let starting = Locked(Starting(unusedListeners: descriptors))
        do {
            group = try RunLoopThreadGroup(
                count: count, name: "http", drainLimit: drainLimit,
                setup: { loop in try Server.openHost(on: loop, starting, inbox, pages) },
                drain: { _, host in host.beginDraining() },
                teardown: { _, host in host.close() })
        } catch {
            for listener in starting.withLock({ $0.unusedListeners }) { Listeners.release(listener) }
            throw error as? DemoError
                ?? DemoError(sentence: "cannot start \(Format.count(count, "server loop")): \(error)")
        }
        counters = starting.withLock { $0.counters }
    }

    /// Stops and joins the threads; each answers its requests in progress, and frees its evhttp. Returns false if one of them has not ended
    /// within `timeout`; it can be called again.
    func stop(timeout: Duration = .seconds(5)) -> Bool {
        group.shutdown(timeout: timeout).isEmpty
    }

    /// On the loop's thread. The numbers follow the order in which the threads are set up, like their names. Only the displayed names
    /// depend on it.
    private static func openHost(
        on loop: RunLoop, _ starting: Locked<Starting>, _ inbox: Inbox?, _ pages: Pages
    ) throws(DemoError) -> HTTPHost {
        let (listener, number) = starting.withLock { ($0.unusedListeners.removeLast(), $0.counters.count) }
        let counters = HostCounters()
        do throws(DemoError) {
            let host = try HTTPHost.open(
                number: number, loop: loop, listeningOn: listener, counters: counters, inbox: inbox, pages: pages)
            starting.withLock { $0.counters.append(counters) }
            return host
        } catch {
            starting.withLock { $0.unusedListeners.append(listener) }
            throw error
        }
    }
}
