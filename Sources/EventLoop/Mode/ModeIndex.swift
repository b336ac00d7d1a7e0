// Finding a mode by its name.
//
// Lifecycle of a table of slots: allocated under the loop's lock, twice as large as the one before. Threads read it without the lock, so an
// outgrown one stays until the index ends.

import Synchronization

/// The words of a string. Two strings with the same words, both of which exist, have the same text: short ones are in the words, others
/// share their memory. Strings with the same text may have different words.
struct NameBits: Equatable, Sendable {
    private let first: UInt64, second: UInt64

    @inline(__always)
    init(_ name: RunLoop.Mode) {
        // SAFETY: a string is two words, which are only compared.
        (first, second) = unsafeBitCast(name.rawValue, to: (UInt64, UInt64).self)
    }

    @inline(__always)
    static func == (one: NameBits, other: NameBits) -> Bool { one.first == other.first && one.second == other.second }
}

/// A hash table of the modes that come after the first few, which are compared one by one. Any thread reads it without a lock; modes are
/// only added, under the loop's lock.
struct ModeIndex: ~Copyable, @unchecked Sendable {
    // SAFETY: `table` is an atomic, and so are the slots behind it; the rest is guarded by the loop's lock.

    /// How many modes are not in the table.
    static let leastCount = 8

    /// Slots with the index of a mode, or zero. At most half of them are used, so that a search ends.
    private final class Table {
        let mask: Int
        let slots: UnsafeMutablePointer<Atomic<UInt32>>
        /// The smaller table before.
        private let outgrown: Table?
        /// All that was ever inserted. Guarded by the loop's lock.
        @exclusivity(unchecked) private var entries: [(index: UInt32, hash: Int)]

        /// Whether another entry leaves half of the slots free.
        var hasRoom: Bool { (entries.count + 1) * 2 <= mask + 1 }

        init(outgrown: Table?) {
            let capacity = outgrown.map { 2 * ($0.mask + 1) } ?? 16
            mask = capacity - 1
            entries = outgrown?.entries ?? []
            slots = .allocate(capacity: capacity)
            for slot in 0..<capacity { (slots + slot).initialize(to: Atomic(0)) }
            self.outgrown = outgrown
            for (index, hash) in entries { put(index, hash) }
        }

        deinit {
            slots.deinitialize(count: mask + 1)
            slots.deallocate()
        }

        func insert(_ index: UInt32, _ hash: Int) {
            entries.append((index, hash))
            put(index, hash)
        }

        /// Releasing: a thread that finds the index finds the mode.
        private func put(_ index: UInt32, _ hash: Int) {
            var slot = hash & mask
            while slots[slot].load(ordering: .relaxed) != 0 { slot = (slot + 1) & mask }  // ends: half of the slots are free
            slots[slot].store(index, ordering: .releasing)
        }
    }

    private let table = Atomic<Unmanaged<Table>?>(nil)

    deinit { table.load(ordering: .relaxed)?.release() }

    /// The index of a mode. `isNamed` says whether the mode with an index has the name. Any thread.
    borrowing func find(_ name: RunLoop.Mode, _ isNamed: (Int) -> Bool) -> Int? {
        guard let table = table.load(ordering: .acquiring) else { return nil }
        return table._withUnsafeGuaranteedRef { table in
            var slot = name.hashValue & table.mask
            while true {  // ends: half of the slots are free
                let index = Int(table.slots[slot].load(ordering: .acquiring))
                if index == 0 { return nil }
                if isNamed(index) { return index }
                slot = (slot + 1) & table.mask
            }
        }
    }

    /// Adds a mode, which the mode table has already. Under the loop's lock.
    borrowing func addLocked(_ name: RunLoop.Mode, _ index: Int) {
        let present = table.load(ordering: .relaxed)
        if let present, present._withUnsafeGuaranteedRef({ $0.hasRoom }) {
            present._withUnsafeGuaranteedRef { $0.insert(UInt32(index), name.hashValue) }
            return
        }
        // The outgrown table keeps its reference, in the larger one.
        let larger = Table(outgrown: present?.takeRetainedValue())
        larger.insert(UInt32(index), name.hashValue)
        table.store(.passRetained(larger), ordering: .releasing)
    }
}
