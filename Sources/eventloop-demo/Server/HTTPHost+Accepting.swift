// Accepting connections, and the pauses while descriptors are short.
//
// A host leaves the last descriptors of the process to others: `ctl` needs one to connect. Clients then wait in the kernel's queue.

import CLibevent
import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension HTTPHost {
    private static let reservedDescriptors = 8
    private static let pause = Duration.milliseconds(50)

    /// Closes the listening socket. Idempotent.
    func stopAccepting() {
        guard let listener else { return }
        self.listener = nil
        acceptTimer?.invalidate()
        evhttp_del_accept_socket(http, listener)
    }

    func prepareForShortage() {
        let here = LoopBound(self)
        let timer = RunLoop.Timer.onDemand(label: "accept again") { _ in here.value.resumeAccepting() }
        loop.add(timer)
        acceptTimer = timer
        // Other processes may take the machine's last descriptors. If accepting fails, the listener stays readable, and without a pause
        // the loop would spin.
        guard let listener else { return }
        ListenerShortage.watch(evhttp_bound_socket_get_listener(listener), of: http) { here.value.pauseAccepting() }
    }

    /// For each new connection. A listener that is disabled here accepts no further one.
    func accepted() {
        counters.accepted.add(1)
        if isShortOfDescriptors { pauseAccepting() }
    }

    private func pauseAccepting() {
        guard let listener else { return }
        counters.pauses.add(1)
        evconnlistener_disable(evhttp_bound_socket_get_listener(listener))
        acceptTimer?.nextFire = .now + HTTPHost.pause
    }

    private func resumeAccepting() {
        guard let listener else { return }
        if isShortOfDescriptors {
            acceptTimer?.nextFire = .now + HTTPHost.pause
        } else {
            evconnlistener_enable(evhttp_bound_socket_get_listener(listener))
        }
    }

    /// The kernel gives the lowest free number, so the number of a copy shows how many are left.
    private var isShortOfDescriptors: Bool {
        guard let listener else { return false }
        let copy = fcntl(evhttp_bound_socket_get_fd(listener), F_DUPFD_CLOEXEC, 0)
        if copy < 0 { return true }
        Listeners.release(copy)
        return Int(copy) + HTTPHost.reservedDescriptors >= Process.descriptorLimit
    }
}
