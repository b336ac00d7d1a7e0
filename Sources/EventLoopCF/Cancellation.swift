// Calls during which the thread cannot be cancelled.

internal import EventLoopLibC

/// Calls `body` while a pthread_cancel of this thread is held back.
///
/// Most system calls are cancellation points (pthread_setcancelstate(3)). A thread that ended in one would keep a lock or its turn for ever.
func withoutCancellation<R>(_ body: () -> R) -> R { /* DOES CALLOUT */
    var state: Int32 = 0
    pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), &state)
    defer { pthread_setcancelstate(state, nil) }
    return body()
}
