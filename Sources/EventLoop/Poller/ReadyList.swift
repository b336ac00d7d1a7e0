// What a wait has collected and nobody has served yet.
//
// Lifecycle of the storage: allocated here, grown by doubling, freed in deinit. Owning thread only.

/// Registrations in the order the kernel reported them; contiguous, without reference counts.
struct ReadyList: ~Copyable {
    private var storage: UnsafeMutablePointer<RegistrationPointer>
    private var capacity = 0
    private(set) var count = 0

    init() { storage = .allocate(capacity: 0) }
    deinit { storage.deallocate() }

    var isEmpty: Bool { count == 0 }

    subscript(_ index: Int) -> RegistrationPointer { storage[index] }

    mutating func append(_ registration: RegistrationPointer) {
        if count == capacity {
            let larger = max(16, capacity * 2)
            let grown = UnsafeMutablePointer<RegistrationPointer>.allocate(capacity: larger)
            grown.moveInitialize(from: storage, count: count)
            storage.deallocate()
            storage = grown
            capacity = larger
        }
        storage[count] = registration
        count += 1
    }

    mutating func removeAll(where isRemoved: (RegistrationPointer) -> Bool) {
        var kept = 0
        for index in 0..<count {
            let registration = storage[index]
            if isRemoved(registration) { continue }
            storage[kept] = registration
            kept += 1
        }
        count = kept
    }

    mutating func removeAll() { count = 0 }
}
