internal import CPlatform
import Synchronization

/// The identity of a loop. An id is unique in the process and never reused. A pthread_t is reused, so it is not compared.
enum LoopID {
    private static let last = Atomic<UInt64>(0)
    /// Initializes the counter: see `LoopGlobals`.
    static func prepare() { _ = last.load(ordering: .relaxed) }

    /// A new id. Never zero.
    static func make() -> UInt64 {
        let id = last.add(1, ordering: .relaxed).newValue
        // Timers store the id in half a word.
        precondition(id <= UInt64(UInt32.max), "this process has made \(UInt32.max) run loops, and can make no more; reuse threads")
        return id
    }

    /// The id of the calling thread's loop; zero if the thread has none.
    @inline(__always) static var current: UInt64 { cplatform_current_loop_id() }

    /// The id of the ended loop whose jobs the calling thread runs; zero on all other threads.
    @inline(__always) static var adopted: UInt64 {
        get { cplatform_adopted_loop_id() }
        set { cplatform_set_adopted_loop(newValue) }
    }
}
