// The service manager that started this process, and the notifications it expects. Supervisor+Watching.swift has the signs of life.
//
// Lifecycle of the notifying socket: init opens it if there is a service manager, deinit closes it.

internal import CPlatform
public import EventLoop
internal import EventLoopLibC

extension RunLoop {
    /// The service manager that started this process: systemd, or another that has its protocols (sd_notify(3), sd_watchdog_enabled(3),
    /// sd_listen_fds(3)).
    ///
    /// Without a service manager every call is a no-op that costs a comparison, and there is no thread, no timer and no descriptor. So a
    /// program makes a supervisor once, early, and calls it unconditionally.
    ///
    /// Thread-safe. Calls nobody back. CFRunLoop has no counterpart; on Apple's systems launchd has protocols of its own.
    public final class Supervisor: Sendable {
        /// Nil if nobody expects notifications.
        let notifier: SupervisorNotifier?
        /// How long the service manager waits for a sign of life before it ends this process (`WatchdogSec=`); nil if it does not wait, or
        /// if nobody expects notifications. `watch` sends signs of life twice in this time.
        public let watchdogInterval: Swift.Duration?
        /// What the service manager opened for this process, in the order of the socket units (socket activation). The descriptors belong
        /// to the caller, and are close-on-exec. Two supervisors that read the same environment have the same descriptors.
        public let sockets: [InheritedSocket]
        let pulse = SupervisorPulse()

        /// Reads this process's environment. Empty variables, and those that name another process, count as absent.
        ///
        /// - Parameter unsettingEnvironment: whether to remove the variables from the environment, so that child processes do not see
        ///   them. The C library does not synchronize the environment: no other thread may read or change it during this call.
        /// - Throws: `.badVariable` for a value that the protocol does not allow or the library does not support; `.system` if an inherited
        ///   descriptor is not open, or if there is none left for the notifying socket.
        public convenience init(unsettingEnvironment: Bool = false) throws(SupervisorError) {
            let environment = SupervisorEnvironment.ofThisProcess()
            if unsettingEnvironment { for name in SupervisorEnvironment.variables { unsetenv(name) } }
            try self.init(environment: environment)
        }

        /// The same for variables that the caller has read. Other variables may be among them.
        public convenience init(environment: [String: String]) throws(SupervisorError) {
            try self.init(environment: environment, firstDescriptor: 3)
        }

        /// Tests of this process cannot choose the numbers of its descriptors.
        init(environment: [String: String], firstDescriptor: Int32) throws(SupervisorError) {
            let environment = try SupervisorEnvironment(environment, process: getpid())
            sockets = try InheritedSocket.all(named: environment.descriptorNames, from: firstDescriptor)
            watchdogInterval = environment.watchdogInterval
            notifier = if let address = environment.notifyAddress { try SupervisorNotifier(address) } else { nil }
        }

        deinit { pulse.end() }

        /// Whether a service manager expects notifications.
        public var isPresent: Bool { notifier != nil }

        // MARK: Notifications

        /// The service is up (READY=1): for `Type=notify`, units that are ordered after this one start now. Also the end of a reload.
        ///
        /// Like every notification it blocks only if the service manager has not read hundreds of earlier ones, and then for a second at
        /// most.
        /// - Parameter status: as for `notify(status:)`, in the same notification.
        /// - Throws: `.system` if the notification could not be sent.
        public func notifyReady(status: String? = nil) throws(SupervisorError) { try send(["READY=1"], status) }

        /// The service begins to shut down (STOPPING=1). Keep the loops watched while they drain.
        public func notifyStopping(status: String? = nil) throws(SupervisorError) { try send(["STOPPING=1"], status) }

        /// The service reloads its configuration (RELOADING=1, with the time that `Type=notify-reload` wants). `notifyReady()` ends it.
        public func notifyReloading(status: String? = nil) throws(SupervisorError) {
            try send(["RELOADING=1", "MONOTONIC_USEC=\(Instant.now.nanoseconds / 1_000)"], status)
        }

        /// What the service does, for people who ask (STATUS=; `systemctl status` shows it). Control characters become spaces, and a text
        /// of more than 2,048 bytes is cut.
        public func notify(status: String) throws(SupervisorError) { try send([], status) }

        /// A start, a stop or a reload takes longer (EXTEND_TIMEOUT_USEC): the service manager waits at least `duration` from now on for
        /// the next notification.
        public func extendTimeout(by duration: Swift.Duration) throws(SupervisorError) {
            try send(["EXTEND_TIMEOUT_USEC=\(max(0, duration.saturatedNanoseconds) / 1_000)"], nil)
        }

        /// Any other notification, as sd_notify(3) lists them: `notify(["ERRNO": "2"])`.
        ///
        /// - Throws: `.badNotification` if a name is not of letters, digits and underscores, if a value has a line break, or if all
        ///   together have more than 4,096 bytes; `.system` if it could not be sent.
        public func notify(_ assignments: KeyValuePairs<String, String>) throws(SupervisorError) {
            try notifier?.send(assignments)
        }

        private func send(_ lines: [String], _ status: String?) throws(SupervisorError) {
            guard let notifier else { return }
            try notifier.send(lines + (status.map { ["STATUS=" + SupervisorNotifier.sanitized($0)] } ?? []))
        }
    }
}
