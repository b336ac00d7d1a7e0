// Registrations for the pure lists of the poller: they have a descriptor number and links, and no event behind them.

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

extension RegistrationPointer {
    /// The caller frees it, with `deallocate()`.
    static func fake(descriptor: Int32) -> RegistrationPointer {
        let nobody = UnsafeRawPointer(bitPattern: 16)!
        let registration = RegistrationPointer.allocate(capacity: 1)
        // SAFETY: the lists look at the number and at their own links; neither the poller nor the owner is ever reached.
        registration.initialize(
            to: Registration(
                poller: .fromOpaque(nobody), owner: nobody,
                watch: Watch(
                    descriptor: descriptor, wanted: .read, trigger: .level, priority: .default, identity: FileIdentity(stat())),
                tag: 0))
        return registration
    }
}
