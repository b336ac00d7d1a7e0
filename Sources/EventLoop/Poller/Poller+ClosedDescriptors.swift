// What the poller does about descriptors that were closed under it.
//
// The kernel's epoll set holds a *file* under the number that it was added with. If that descriptor is closed while a duplicate of it is
// open, the file stays in the set, and no `epoll_ctl` can take it out: the number is free, or another file's. When the file becomes ready,
// the kernel reports a number that libevent has no event for, and libevent asks again at once, for ever, inside one wait. The kernel's
// refusal to delete the event says that this may happen (`OpaqueEvent.delete`). From then on the poller waits on the epoll descriptor
// itself, where it sees that the set is ready although libevent finds nothing; then it makes a new base (`rebuild`). A sweep through the
// set's own list ends that state when nothing was left behind, which is usual: most descriptors that are closed too early have no
// duplicate.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Descriptors that were closed before their events were taken off the base. Their files may be in the kernel's set for ever.
struct ClosedDescriptors {
    /// Whose each was, as far as that is known.
    fileprivate var owners: [Int32: String] = [:]
    /// How many waits there are before the next sweep: a sweep costs as much as some of them, for each descriptor in the set.
    fileprivate var waitsBeforeSweep = 0

    var isEmpty: Bool { owners.isEmpty }

    mutating func insert(_ descriptor: Int32, among count: Int) {
        if owners.isEmpty { waitsBeforeSweep = max(16, count) }
        if owners[descriptor] == nil { owners[descriptor] = "" }
    }

    mutating func describe(_ descriptor: Int32, _ owner: String) { owners[descriptor] = owner }
}

extension Poller {
    /// Notes whose descriptor it was. A base with guests cannot be made anew, so what the mistake may cost is said at once.
    func noteClosedEarly(_ descriptor: Int32, _ owner: String) {
        closedEarly.describe(descriptor, owner)
        if guests == nil { return }
        LibeventRuntime.warn(
            """
            descriptor \(descriptor), of \(owner), was closed before its source was invalidated. If a duplicate of it is open, the kernel \
            goes on reporting it, and the loop uses the processor while it waits: its base has events of a C library and cannot be made \
            anew. Invalidate the source first, and close the descriptor in onInvalidation.
            """)
    }

    /// Waits on the epoll descriptor instead of in libevent, which would not return when the kernel reports a descriptor without an event.
    func enterAmongClosed(waiting: Bool) {
        guard let set = epollSet() else {
            // There is no telling; a new base has nothing left behind.
            rebuild()
            return enterLibevent(waiting: waiting)
        }
        closedEarly.waitsBeforeSweep -= 1
        if closedEarly.waitsBeforeSweep < 0 { sweep(set) }
        var isReady = false
        var misses = 0
        while true {  // ends: with an event of ours, or in the third turn in which the set is ready and libevent has no event for it
            enterLibevent(waiting: false)
            if !waiting || collected > 0 || deadline.hasFired || !stale.isEmpty { return }
            if isReady { misses += 1 }
            if misses == 3 {
                reportLeftBehind(in: set)
                rebuild()
                return enterLibevent(waiting: waiting)
            }
            isReady = cplatform_wait_for_readable(set)
        }
    }

    /// Looks for files that were left behind, and stops looking when there are none.
    private func sweep(_ set: Int32) {
        if leftBehind(in: set).isEmpty {
            closedEarly = ClosedDescriptors()
        } else {
            reportLeftBehind(in: set)
            rebuild()
        }
    }

    private func reportLeftBehind(in set: Int32) {
        for (descriptor, owner) in leftBehind(in: set) {
            LibeventRuntime.warn(
                """
                descriptor \(descriptor)\(owner.isEmpty ? "" : ", of \(owner),") was closed before its source was invalidated, and a \
                duplicate of it is open, so the kernel went on reporting it; the event base was made anew. Invalidate the source \
                first, and close the descriptor in onInvalidation.
                """)
        }
    }

    /// The numbers of which the kernel's set has a file that is not watched by anybody.
    private func leftBehind(in set: Int32) -> [Int32: String] {
        var members = [Int32](repeating: -1, count: registrations.count + closedEarly.owners.count + internals.count + 16)
        let count = members.withUnsafeMutableBufferPointer { cplatform_epoll_members(set, $0.baseAddress, Int32($0.count)) }
        // Without the kernel's list each of them may be.
        guard count >= 0 else { return closedEarly.owners }
        var found: [Int32: Int] = [:]
        for member in members.prefix(Int(count)) where closedEarly.owners[member] != nil { found[member, default: 0] += 1 }
        return closedEarly.owners.filter { found[$0.key, default: 0] > (watches($0.key) ? 1 : 0) }
    }

    /// Whether an event of ours stands in the kernel's set under this number.
    private func watches(_ descriptor: Int32) -> Bool {
        if descriptor == deadline.descriptor || internals.contains(where: { $0.pointee.descriptor == descriptor }) { return true }
        var isWatched = false
        forEachAdded { registration in
            let gate = registration.pointee.gate
            if (gate >= 0 ? gate : registration.pointee.watch.descriptor) == descriptor { isWatched = true }
        }
        return isWatched
    }

    /// The base's epoll descriptor, which libevent does not tell: the set that has this base's timer descriptor.
    private func epollSet() -> Int32? {
        if deadline.descriptor < 0 { return nil }
        deadline.forgetExpiry()
        let set = cplatform_find_epoll_set(deadline.descriptor)
        return set >= 0 ? set : nil
    }

    // MARK: Waits that fail

    /// The kernel refuses to wait. That a source's descriptor was closed is that source's failure; anything else is the end.
    @inline(never)
    func settleFailedWait() {
        let code = errno
        // select(2): "EBADF An invalid file descriptor was given in one of the sets".
        if code == EBADF && !base.reportsEdges {
            let before = stale.count
            forEachAdded { registration in
                if FileIdentity(of: registration.pointee.watch.descriptor) != nil { return }
                stale.append(registration.pointee.owner)
                disconnect(registration)
            }
            if stale.count > before {
                outcome.insert(.stale)
                return updateCare()
            }
        }
        preconditionFailure(
            """
            the run loop cannot wait any more: \(base.method): \(String(cString: strerror(code))) (errno \(code)). Code that does not own \
            it has closed the descriptor that the loop waits with, or has put another file in its place
            """)
    }
}
