// Waiting beside C libraries while somebody observes the loop's callouts, so that the time of the libraries' callbacks is separate from the wait.
//
// libevent calls them inside its wait, and reports the end of the wait only since 2.2. So the thread waits on the base's epoll descriptor, then
// enters libevent without waiting. That call is the callbacks' time.

internal import CPlatform

/// Who observes a loop's callouts.
protocol GuestObserver: AnyObject {
    /// libevent may call C libraries from now on. If `isWaiting`, it may wait before.
    func willCallGuests(isWaiting: Bool) -> OpenCalloutSpan?
    func didCallGuests(_ span: OpenCalloutSpan, mayHaveWaited: Bool, wereCalled: Bool)
}

/// A callout that the owner has opened a span for: the index of the span, and the number of the observation that has it.
struct OpenCalloutSpan {
    let level: Int, adoption: UInt32
}

extension Poller {
    /// As `enterBesideGuests`. The timeouts of C libraries are up to a tick of the kernel's clock later than in libevent's own wait.
    @inline(never)
    func enterBesideObservedGuests(_ set: Int32, waiting: Bool) { /* DOES CALLOUT, of C libraries only */
        while true {  // ends: with an event of ours, the deadline, or a callback of a C library
            askBesideGuests(waiting: false)
            // A callback may have ended the observation.
            if !waiting || state.collected > 0 || state.deadline.hasFired || !state.outcome.isEmpty { return }
            // Our own deadline has a descriptor in the set; the timeouts of C libraries have none.
            let left = nextGuestTimeout.subtractingSaturated(RunLoop.Instant.now.nanoseconds)
            var entry = cplatform_polled(descriptor: set, wanted: Int32(CPLATFORM_READ), ready: 0)
            if left > 0 { cplatform_poll(&entry, 1, left) }
        }
    }
}
