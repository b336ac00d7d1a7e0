// Keeping the name: what a port does when the file of its socket has gone, as it does at a logout with the directory around it.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension PortServer {
    private static let shortestPause = Duration.milliseconds(100)
    private static let longestPause = Duration.seconds(60)
    /// How many clients that have found the old socket are let in before it goes.
    private static let oldClients = 64

    /// Watches for the removal of the socket's file and for a move of its directory. Returns false if the caller has to retry: the system is out of
    /// a resource, or the file is gone already. Returns true on a system without such a watch, where a removal goes unnoticed.
    func watchName() -> Bool {
        nameWatch = registration.watchFile()
        if nameWatch < 0 { return errno == ENOSYS }
        var set = set
        if cplatform_port_set_watch(&set, nameWatch, Self.nameToken, Readiness.read.rawValue, true) == 0 { return true }
        forgetNameWatch()
        return false
    }

    /// Schedules the next `checkName`, backing off exponentially.
    func retryNameLater() {
        let pause = min(renewal.map { $0.pause * 2 } ?? Self.shortestPause, Self.longestPause)
        renewal = (clock().advanced(by: pause), pause)
    }

    func forgetNameWatch() {
        if nameWatch < 0 { return }
        if !belongsToParentProcess {
            var set = set
            cplatform_port_set_forget(&set, nameWatch)
        }
        close(nameWatch)
        nameWatch = -1
    }

    /// The file has been touched, or it is time to try again.
    func checkName() {
        cplatform_drain_file_watch(nameWatch)
        if hasLostName {
            renewal = nil
            return
        }
        // First the watch, then the check, so that a removal in between is noticed.
        var isWatched = nameWatch >= 0 || watchName()
        do throws(RunLoop.PortError) {
            do throws(RunLoop.PortError) {
                if try !registration.isInPlace { isWatched = try takeNameAgain() }
            } catch .nameInUse {
                // The directory may be back, so that the port that answered is this one. Otherwise another port has the name, and this one must
                // end: a name has one owner.
                hasLostName = try !registration.isInPlace
            }
            if isWatched || hasLostName { renewal = nil } else { retryNameLater() }
        } catch {
            retryNameLater()
        }
    }

    /// Returns whether the new file is watched, or cannot be on this system; false if `watchName` has to be retried.
    private func takeNameAgain() throws(RunLoop.PortError) -> Bool {
        let (new, socket) = try PortRegistration.take(name, backlog: Self.backlog, patience: .zero)
        var set = set
        if cplatform_port_set_watch(&set, socket, Self.listenerToken, Readiness.read.rawValue, true) != 0 {
            let code = errno
            new.withdraw()
            close(socket)
            throw .system(operation: "watching the port's socket", errno: code)
        }
        // Those that have connected already were here first.
        for _ in 0..<(Self.oldClients / Self.acceptsAtOnce) where pausedUntil == nil { accept() }
        let isWithdrawn = place.withLock { place in
            if !place.isWithdrawn { (place.registration, place.listener) = (new, socket) }
            return place.isWithdrawn
        }
        if isWithdrawn {
            cplatform_port_set_forget(&set, socket)
            new.withdraw()
            DescriptorCloser.end(socket)
            return true
        }
        let old = (registration, listener)
        (registration, listener) = (new, socket)
        pausedUntil = nil
        // It may be in a directory that was moved away.
        old.0.withdraw(patience: .zero)
        cplatform_port_set_forget(&set, old.1)
        DescriptorCloser.end(old.1)
        forgetNameWatch()
        return watchName()
    }
}
