// A source's place in one base.
//
// Lifecycle: allocated by `Poller.register`, freed by `Poller.unregister`; while a batch of ready sources is being served the memory
// stays, marked dead, because its source may be the one that is being served (`Poller.retired`).

/// Behind each lies libevent's own record of 128 bytes, and there may be a hundred thousand of them: the fields stand in an order that leaves
/// no gaps.
struct Registration {
    let poller: Unmanaged<Poller>
    /// The membership that the poller's owner registered; opaque down here.
    let owner: UnsafeRawPointer
    /// The owner's next registration, in another base. The owner's to use.
    var nextOfOwner: UnsafeMutablePointer<Registration>?
    /// The next registration of the same descriptor number in the same base.
    var nextOnDescriptor: UnsafeMutablePointer<Registration>?
    /// The neighbours in the ready list.
    var previousReady: UnsafeMutablePointer<Registration>?
    var nextReady: UnsafeMutablePointer<Registration>?
    var watch: Watch
    /// What the owner knows the base by.
    let tag: Int32
    /// The descriptor of the registration's own small poller, or -1.
    var nestedPoller: Int32 = -1
    /// How often it was served.
    var servings: UInt32 = 0
    /// When the registration was served last, in the poller's count of servings, which wraps around.
    var servedAt: UInt32 = 0
    /// What was collected and not served yet; not empty exactly while the registration stands in the ready list.
    var pending: Readiness = []
    /// libevent holds the event.
    var isAdded = false
    /// The only shot of a one-shot behind a nested poller has been fired.
    var isSpent = false
    /// What libevent reports needs no second thought: no nested poller, and the event stays added.
    var isPlain = false
}

typealias RegistrationPointer = UnsafeMutablePointer<Registration>
