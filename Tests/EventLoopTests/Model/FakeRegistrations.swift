// Registrations for the poller's lists. They have a descriptor number and links, but no event.

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

extension RegistrationPointer {
    /// The caller frees it with `deallocate()`.
    static func fake(descriptor: Int32) -> RegistrationPointer {
        let nobody = UnsafeRawPointer(bitPattern: 16)!
        let registration = RegistrationPointer.allocate(capacity: 1)
        // SAFETY: the lists read the number and their own links only; they never access the poller or the owner.
        registration.initialize(
            to: Registration(
                poller: .fromOpaque(nobody), owner: nobody,
                watch: Watch(
                    descriptor: descriptor, wanted: .read, trigger: .level, priority: .default, identity: FileIdentity(stat())),
                tag: 0))
        return registration
    }
}
