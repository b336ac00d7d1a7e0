// Calls during which the thread cannot be cancelled.

internal import EventLoopLibC

/// Calls `body` while a pthread_cancel of this thread is held back.
///
/// Most system calls here are cancellation points (pthread_setcancelstate(3)). A thread that ended in one would leave a lock held for ever, or stay the
/// reader of a connection that nobody else may read then.
func withoutCancellation<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R { /* DOES CALLOUT */
    var state: Int32 = 0
    pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), &state)
    defer { pthread_setcancelstate(state, nil) }
    return try body()
}
