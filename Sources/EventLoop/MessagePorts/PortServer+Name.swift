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

    /// Has the kernel say when the socket's file is removed or its directory moved. Where it cannot, nothing says so.
    func watchName() {
        nameWatch = registration.watchFile()
        var set = set
        if nameWatch >= 0 && cplatform_port_set_watch(&set, nameWatch, Self.nameToken, Readiness.read.rawValue, true) != 0 {
            forgetNameWatch()
        }
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
        if hasLostName || registration.isInPlace {
            renewal = nil
            return
        }
        do throws(RunLoop.PortError) {
            try takeNameAgain()
            renewal = nil
        } catch .nameInUse {
            // Two owners of one name would be worse than none: the other one has it.
            hasLostName = true
            renewal = nil
        } catch {
            let pause = min(renewal.map { $0.pause * 2 } ?? Self.shortestPause, Self.longestPause)
            renewal = (clock().advanced(by: pause), pause)
        }
    }

    private func takeNameAgain() throws(RunLoop.PortError) {
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
            return
        }
        let old = (registration, listener)
        (registration, listener) = (new, socket)
        pausedUntil = nil
        // It may be in a directory that was moved away.
        old.0.withdraw(patience: .zero)
        cplatform_port_set_forget(&set, old.1)
        DescriptorCloser.end(old.1)
        forgetNameWatch()
        watchName()
    }
}
