/// Ready registrations in the order the kernel reported them. Each knows its index, so that any of them can leave in O(1): its index stays empty
/// until those before it have left. An array touches fewer lines than a list linked through the registrations. Owning thread only. Lifecycle of the
/// storage: allocated here, grown by doubling, freed in deinit.
struct ReadyList: ~Copyable {
    private var slots: UnsafeMutablePointer<RegistrationPointer?>
    private(set) var capacity = 0
    /// The slots in use are from `front` to `end`. The first is not empty, unless there is none.
    private var front = 0
    private var end = 0
    init() { slots = .allocate(capacity: 0) }
    deinit { slots.deallocate() }
    @inline(__always) var isEmpty: Bool { front == end }
    @inline(__always) var first: RegistrationPointer? { front == end ? nil : slots[front] }

    @inline(__always) mutating func append(_ registration: RegistrationPointer) {
        if !hasRoom { makeRoom() }
        appendInRoom(registration)
    }

    @inline(__always) var hasRoom: Bool { end != capacity }

    /// Only if `hasRoom`.
    @inline(__always) mutating func appendInRoom(_ registration: RegistrationPointer) {
        slots[end] = registration
        registration.pointee.readyIndex = UInt32(truncatingIfNeeded: end)
        end &+= 1
    }

    @inline(__always) mutating func remove(_ registration: RegistrationPointer) {
        let index = Int(registration.pointee.readyIndex)
        assert(index >= front && index < end && slots[index] == registration, "a registration knows its index")
        if index == front { vacateFirstSlot() } else { slots[index] = nil }
    }

    @inline(__always) mutating func takeFirst() -> RegistrationPointer? {
        if front == end { return nil }
        let first = slots[front].unsafelyUnwrapped  // the first slot in use is not empty
        vacateFirstSlot()
        return first
    }

    @inline(__always) private mutating func vacateFirstSlot() {
        front &+= 1
        if front == end { (front, end) = (0, 0) } else if slots[front] == nil { skipEmptySlots() }
    }

    /// From an empty slot to the next registration.
    @inline(never) private mutating func skipEmptySlots() {
        repeat { front &+= 1 } while front < end && slots[front] == nil  // ends: at the end of the list
        if front == end { (front, end) = (0, 0) }
    }

    /// Calls `body` with each. The caller does not change the list meanwhile.
    func forEach(_ body: (RegistrationPointer) -> Void) {
        for index in front..<end { if let registration = slots[index] { body(registration) } }
    }

    /// Takes out those for which `isUnwanted` is true, which may append them to another list, and moves the others to the beginning.
    mutating func removeAll(where isUnwanted: (RegistrationPointer) -> Bool) {
        var new = 0
        for index in front..<end {
            guard let registration = slots[index], !isUnwanted(registration) else { continue }
            slots[new] = registration
            registration.pointee.readyIndex = UInt32(truncatingIfNeeded: new)
            new += 1
        }
        (front, end) = (0, new)
    }

    /// Sorts the registrations. Those of which none goes before the other keep their order, because the standard library's sort is stable.
    @inline(__always) mutating func sort(_ goesBefore: (RegistrationPointer, RegistrationPointer) -> Bool) {
        removeAll { _ in false }
        var slots = UnsafeMutableBufferPointer(start: slots, count: end)
        slots.sort { goesBefore($0.unsafelyUnwrapped, $1.unsafelyUnwrapped) }  // none is empty
        // For their indices.
        removeAll { _ in false }
    }

    /// Moves the registrations to the beginning, and to a larger array if half of the slots are in use.
    @inline(never) private mutating func makeRoom() {
        removeAll { _ in false }
        if end * 2 < capacity { return }
        let larger = UnsafeMutablePointer<RegistrationPointer?>.allocate(capacity: max(16, capacity * 2))
        larger.initialize(from: slots, count: end)
        slots.deallocate()
        (slots, capacity) = (larger, max(16, capacity * 2))
    }
}

/// Where libevent's callbacks collect, in memory of fixed address, so that they need no reference to the poller. It belongs to the loop's thread. The
/// poller allocates its collector in init and frees it in deinit, after the last event has left the base.
struct Collector: ~Copyable {
    var ready = ReadyList()
    /// Every event needs no more than a note in the ready list: no guests, nothing stale.
    var isPlainWait = true
    let poller: Borrowed<Poller>
}
