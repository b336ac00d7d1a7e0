// The registrations of one base by descriptor number.
//
// Lifecycle of the storage: allocated here, grown by doubling, freed in deinit. Owning thread only.

/// Descriptor numbers are small, the lowest free one first, so a table has them all: a word for each, and no hashing.
struct DescriptorTable: ~Copyable {
    private var chains: UnsafeMutablePointer<RegistrationPointer?>
    private var capacity: Int32 = 0
    /// How many registrations there are.
    private(set) var count = 0

    init() { chains = .allocate(capacity: 0) }
    deinit { chains.deallocate() }

    var isEmpty: Bool { count == 0 }

    /// The first registration of a number, which leads to the others.
    func first(of descriptor: Int32) -> RegistrationPointer? { descriptor >= 0 && descriptor < capacity ? chains[Int(descriptor)] : nil }

    mutating func insert(_ registration: RegistrationPointer) {
        let descriptor = registration.pointee.watch.descriptor
        if descriptor >= capacity { grow(toHold: descriptor) }
        registration.pointee.nextOnDescriptor = chains[Int(descriptor)]
        chains[Int(descriptor)] = registration
        count += 1
    }

    mutating func remove(_ registration: RegistrationPointer) {
        let number = Int(registration.pointee.watch.descriptor)
        let next = registration.pointee.nextOnDescriptor
        count -= 1
        if chains[number] == registration {
            chains[number] = next
            return
        }
        var previous = chains[number]
        while let candidate = previous {  // ends: the chain has an end
            if candidate.pointee.nextOnDescriptor == registration {
                candidate.pointee.nextOnDescriptor = next
                return
            }
            previous = candidate.pointee.nextOnDescriptor
        }
        assertionFailure("a registration stands in the table from its making to its end")
    }

    /// Calls `body` with each; it may free that one.
    func forEach(_ body: (RegistrationPointer) -> Void) {
        if count == 0 { return }
        for descriptor in 0..<Int(capacity) {
            var next = chains[descriptor]
            while let registration = next {  // ends: the chain has an end
                next = registration.pointee.nextOnDescriptor
                body(registration)
            }
        }
    }

    private mutating func grow(toHold descriptor: Int32) {
        let larger = max(16, capacity * 2, descriptor + 1)
        let new = UnsafeMutablePointer<RegistrationPointer?>.allocate(capacity: Int(larger))
        new.moveInitialize(from: chains, count: Int(capacity))
        (new + Int(capacity)).initialize(repeating: nil, count: Int(larger - capacity))
        chains.deallocate()
        (chains, capacity) = (new, larger)
    }
}
