// Registrations for the poller's lists. They have a descriptor number and places in lists, but no poller.

@testable import EventLoop

extension RegistrationPointer {
    /// The caller frees it with `freeFake()`.
    static func fake(descriptor: Int32) -> RegistrationPointer {
        // SAFETY: the lists read the number and their own places only; they never access the poller, the owner or the source.
        let registration = Registration.allocate(traits: [])
        registration.pointee.watch.descriptor = descriptor
        return registration
    }

    func freeFake() { free() }
}
