// The registrations that a wait has found ready, until they are served.
//
// Lifecycle of the storage: allocated here, grown by doubling, freed in deinit.

/// Registrations in the order the kernel reported them. Each knows its place, so that any of them can leave in O(1): its place stays
/// empty until those before it have left. An array touches fewer lines than a list that is linked through the registrations. Owning thread
/// only.
struct ReadyList: ~Copyable {
    private var places: UnsafeMutablePointer<RegistrationPointer?>
    private(set) var capacity = 0
    /// The places in use are from `front` to `end`. The first is not empty, unless there is none.
    private var front = 0
    private var end = 0

    init() { places = .allocate(capacity: 0) }
    deinit { places.deallocate() }

    @inline(__always)
    var isEmpty: Bool { front == end }

    @inline(__always)
    var first: RegistrationPointer? { front == end ? nil : places[front] }

    @inline(__always)
    mutating func append(_ registration: RegistrationPointer) {
        if !hasRoom { makeRoom() }
        appendInRoom(registration)
    }

    @inline(__always)
    var hasRoom: Bool { end != capacity }

    /// Only if `hasRoom`.
    @inline(__always)
    mutating func appendInRoom(_ registration: RegistrationPointer) {
        places[end] = registration
        registration.pointee.readyPlace = UInt32(truncatingIfNeeded: end)
        end &+= 1
    }

    /// Takes out a registration that stands in the list.
    @inline(__always)
    mutating func remove(_ registration: RegistrationPointer) {
        let place = Int(registration.pointee.readyPlace)
        assert(place >= front && place < end && places[place] == registration, "a registration knows its place")
        if place != front {
            places[place] = nil
            return
        }
        leaveFirstPlace()
    }

    /// Takes out the first registration; nil if there is none.
    @inline(__always)
    mutating func takeFirst() -> RegistrationPointer? {
        if front == end { return nil }
        let first = places[front].unsafelyUnwrapped  // the first place in use is not empty
        leaveFirstPlace()
        return first
    }

    @inline(__always)
    private mutating func leaveFirstPlace() {
        let next = front &+ 1
        if next == end {
            (front, end) = (0, 0)
        } else {
            front = next
            if places[next] == nil { skipEmptyPlaces() }
        }
    }

    /// From an empty place to the next registration.
    @inline(never)
    private mutating func skipEmptyPlaces() {
        repeat { front &+= 1 } while front < end && places[front] == nil  // ends: at the end of the list
        if front == end { (front, end) = (0, 0) }
    }

    /// Calls `body` with each. The caller does not change the list meanwhile.
    func forEach(_ body: (RegistrationPointer) -> Void) {
        for place in front..<end { if let registration = places[place] { body(registration) } }
    }

    /// Takes out those for which `isUnwanted` is true. It may append them to another list.
    mutating func removeAll(where isUnwanted: (RegistrationPointer) -> Bool) {
        var new = front
        for place in front..<end {
            guard let registration = places[place] else { continue }
            if isUnwanted(registration) { continue }
            places[new] = registration
            registration.pointee.readyPlace = UInt32(truncatingIfNeeded: new)
            new += 1
        }
        end = new
        if front == end { (front, end) = (0, 0) }
    }

    /// Moves the registrations to the beginning, and to a larger array if half of the places are in use.
    @inline(never)
    private mutating func makeRoom() {
        var count = 0
        forEach { _ in count += 1 }
        let larger = count * 2 >= capacity ? max(16, capacity * 2) : capacity
        let new = larger == capacity ? places : UnsafeMutablePointer<RegistrationPointer?>.allocate(capacity: larger)
        var next = 0
        for place in front..<end {
            guard let registration = places[place] else { continue }
            new[next] = registration
            registration.pointee.readyPlace = UInt32(truncatingIfNeeded: next)
            next += 1
        }
        if new != places { places.deallocate() }
        (places, capacity, front, end) = (new, larger, 0, next)
    }
}
