// Waiting for the end of a thread that cannot be joined, for `make test-asan` on Linux.
//
// The leak detector finds a thread by its number. If a joined thread had the number before, it finds that one, does not look at the memory of
// the live one, and calls leaked what nothing else refers to. The suite starts more threads than there are numbers on many machines (32,768).
// The detector forgets a thread that was created detached, so under it the tests create no others.

#if canImport(Glibc)
import Glibc

/// A mutex that the thread holds when it ends, and what says that the thread has it.
///
/// "If the owner thread of a robust mutex terminates while holding the mutex lock, the next thread that acquires the mutex may be notified"
/// (pthread_mutex_lock(3p)). Linux tells it after the thread's exit handlers, a moment before it removes the thread, as
/// it does for a join.
struct EndOfThread: @unchecked Sendable {
    // SAFETY: the semaphore and the mutex are made for several threads. Freed by the only thread that waits, after the thread's end.

    private struct Content {
        var hasBegun = sem_t()
        var life = pthread_mutex_t()
    }
    private let content: UnsafeMutablePointer<Content>

    init() {
        content = .allocate(capacity: 1)
        content.initialize(to: Content())
        sem_init(&content.pointee.hasBegun, 0, 0)
        var attributes = pthread_mutexattr_t()
        pthread_mutexattr_init(&attributes)
        pthread_mutexattr_setrobust(&attributes, Int32(PTHREAD_MUTEX_ROBUST))
        pthread_mutex_init(&content.pointee.life, &attributes)
        pthread_mutexattr_destroy(&attributes)
    }

    /// As one word, in which the leak detector sees the address.
    var handle: UInt { UInt(bitPattern: content) }
    init(handle: UInt) { content = UnsafeMutablePointer(bitPattern: handle)! }  // it is an address

    /// Called by the thread, first of all.
    func begin() {
        pthread_mutex_lock(&content.pointee.life)
        sem_post(&content.pointee.hasBegun)
    }

    /// Waits until the thread and its exit handlers have ended, and then frees this. False if they have not in time.
    func wait(until deadline: timespec) -> Bool {
        var deadline = deadline
        var code: Int32
        repeat { code = sem_timedwait(&content.pointee.hasBegun, &deadline) } while code != 0 && errno == EINTR  // ends: at the deadline
        guard code == 0 else { return false }
        code = pthread_mutex_timedlock(&content.pointee.life, &deadline)
        guard code == EOWNERDEAD else {
            precondition(code == ETIMEDOUT, "pthread_mutex_timedlock: \(code)")
            sem_post(&content.pointee.hasBegun)
            return false
        }
        pthread_mutex_consistent(&content.pointee.life)
        pthread_mutex_unlock(&content.pointee.life)
        pthread_mutex_destroy(&content.pointee.life)
        sem_destroy(&content.pointee.hasBegun)
        content.deallocate()
        return true
    }

    /// Nobody waits. The memory stays, because the thread may still hold the mutex.
    func abandon() { EndOfThread.abandoned.withLock { $0.append(handle) } }
    private static let abandoned = Locked<[UInt]>([])
}
#endif
