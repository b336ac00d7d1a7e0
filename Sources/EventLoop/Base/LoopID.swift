// Who a loop is. An id is unique and never used again; a pthread_t is used again, and is not compared.

internal import CPlatform
import Synchronization

enum LoopID {
    private static let last = Atomic<UInt64>(0)

    /// Makes the counter, which Swift would otherwise make at its first use.
    static func prepare() { _ = last.load(ordering: .relaxed) }

    /// A new id. Never zero.
    static func make() -> UInt64 {
        let id = last.add(1, ordering: .relaxed).newValue
        // Timers pack the id into half a word.
        precondition(id <= UInt64(UInt32.max), "more than four thousand million run loops were made in this process")
        return id
    }

    /// The id of the calling thread's loop; zero when it has none.
    @inline(__always)
    static var current: UInt64 { cplatform_current_loop_id() }

    /// The id of the loop that has ended and whose jobs the calling thread runs in its place; zero on every other thread.
    @inline(__always)
    static var adopted: UInt64 {
        get { cplatform_adopted_loop_id() }
        set { cplatform_set_adopted_loop(newValue) }
    }
}

/// Which process this is, as far as `fork` matters: loops made before a fork belong to the parent.
enum ForkEpoch {
    /// The present epoch; a change says that the caller is in a forked child.
    @inline(__always)
    static var current: Int32 { cplatform_fork_count() }
}
