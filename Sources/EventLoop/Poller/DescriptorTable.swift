/// The registrations of one base by descriptor number. Owning thread only. Descriptor numbers are small, the lowest free one first, so a table has
/// them all: two words for each, and no hashing. Many sources may watch one number, so inserting and removing a registration take constant time.
struct DescriptorTable: ~Copyable {
    // Not private because of the bug that PortQueue.swift describes.
    struct Chain: BitwiseCopyable {
        var first: RegistrationPointer?
        /// How many registrations have their event on the number itself, and not on a nested poller; `soleEdge` for a single edge-triggered one,
        /// which shares the number's entry in the kernel's set with no other.
        var events: Int32 = 0
        static let soleEdge: Int32 = -1
    }

    private var chains = PlainList<Chain>()
    private(set) var count = 0
    var isEmpty: Bool { count == 0 }
    /// The first registration of a number, which leads to the others. It is the one that was inserted last.
    func first(of descriptor: Int32) -> RegistrationPointer? { contains(descriptor) ? chains[Int(descriptor)].first : nil }

    mutating func insert(_ registration: RegistrationPointer) {
        let descriptor = registration.pointee.watch.descriptor
        reserve(descriptor)
        let next = chains[Int(descriptor)].first
        registration.pointee.nextOnDescriptor = next
        registration.pointee.previousOnDescriptor = nil
        next?.pointee.previousOnDescriptor = registration
        chains[Int(descriptor)].first = registration
        count += 1
    }

    mutating func remove(_ registration: RegistrationPointer) {
        let (previous, next) = (registration.pointee.previousOnDescriptor, registration.pointee.nextOnDescriptor)
        count -= 1
        next?.pointee.previousOnDescriptor = previous
        if let previous {
            previous.pointee.nextOnDescriptor = next
        } else {
            assert(first(of: registration.pointee.watch.descriptor) == registration, "a registration is in the table to its end")
            chains[Int(registration.pointee.watch.descriptor)].first = next
        }
    }

    // MARK: Events on the number itself
    /// Whether an event can be added for the number itself: an edge-triggered one only alone, others beside all but an edge-triggered one.
    func hasRoom(forEventOf watch: Watch) -> Bool {
        guard contains(watch.descriptor) else { return true }
        let events = chains[Int(watch.descriptor)].events
        return watch.trigger == .edge ? events == 0 : events != Chain.soleEdge
    }

    mutating func countEvent(of watch: Watch) {
        reserve(watch.descriptor)
        assert(hasRoom(forEventOf: watch), "an edge-triggered event is alone")
        chains[Int(watch.descriptor)].events += watch.trigger == .edge ? Chain.soleEdge : 1
    }

    /// The event was deleted. It may be called during `forEach`.
    func discountEvent(of watch: Watch) {
        let events = chains[Int(watch.descriptor)].events
        assert(events != 0 && (watch.trigger == .edge) == (events == Chain.soleEdge), "an event is counted while it is added")
        chains[Int(watch.descriptor)].events -= watch.trigger == .edge ? Chain.soleEdge : 1
    }

    private func contains(_ descriptor: Int32) -> Bool { descriptor >= 0 && descriptor < chains.count }

    /// Calls `body` with each; it may free that one.
    func forEach(_ body: (RegistrationPointer) -> Void) {
        if count == 0 { return }
        for descriptor in 0..<chains.count {
            var next = chains[descriptor].first
            while let registration = next {  // ends: the chain has an end
                next = registration.pointee.nextOnDescriptor
                body(registration)
            }
        }
    }

    @inline(__always) private mutating func reserve(_ descriptor: Int32) {
        if descriptor >= chains.count { chains.extend(to: Int(descriptor) + 1, repeating: Chain()) }
    }
}
