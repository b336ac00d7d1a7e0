// What a wait has collected and nobody has served yet.

/// Registrations in the order the kernel reported them, linked through themselves: nothing here allocates, and any of them can leave
/// in O(1). Owning thread only.
struct ReadyList {
    private(set) var first: RegistrationPointer?
    private var last: RegistrationPointer?

    var isEmpty: Bool { first == nil }

    @inline(__always)
    mutating func append(_ registration: RegistrationPointer) {
        registration.pointee.previousReady = last
        registration.pointee.nextReady = nil
        if let last { last.pointee.nextReady = registration } else { first = registration }
        last = registration
    }

    /// Takes out a registration that stands in the list.
    @inline(__always)
    mutating func remove(_ registration: RegistrationPointer) {
        let (previous, next) = (registration.pointee.previousReady, registration.pointee.nextReady)
        if let previous { previous.pointee.nextReady = next } else { first = next }
        if let next { next.pointee.previousReady = previous } else { last = previous }
    }

    /// Appends a whole list.
    mutating func append(_ other: ReadyList) {
        guard let joint = other.first else { return }
        joint.pointee.previousReady = last
        if let last { last.pointee.nextReady = joint } else { first = joint }
        last = other.last
    }

    /// Calls `body` with each; it may take that one out, or move it to another list.
    func forEach(_ body: (RegistrationPointer) -> Void) {
        var next = first
        while let registration = next {  // ends: the list has an end
            next = registration.pointee.nextReady
            body(registration)
        }
    }
}
