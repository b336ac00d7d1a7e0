// Where libevent's callbacks collect: memory of fixed address, so that a callback needs no reference to the poller.
//
// Lifecycle: the poller allocates its collector in init and frees it in deinit, after the last event has left the base.

/// What the callback of an event reads and writes, beside the registration. It belongs to the thread of the poller's loop.
struct Collector: ~Copyable {
    var ready = ReadyList()
    /// Every event needs no more than a note in the ready list: no guests, nothing stale.
    var isPlainWait = true
    let poller: Borrowed<Poller>

    init(_ poller: Borrowed<Poller>) { self.poller = poller }
}
