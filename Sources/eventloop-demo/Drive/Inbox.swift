// A custom input source that passes work from one thread to another: the Guide's Listings 3-3 to 3-9.
//
// The Guide's RunLoopSource has a command buffer to which any thread may add, and performs the commands on its
// loop. Here the commands are batches: "loop 2 has answered 256 more requests".

import EventLoop

final class Inbox: Sendable {
    struct Batch: Sendable {
        /// The number of the server loop that sends it.
        var host: Int
        var requests: UInt64
        var handedOverAt: RunLoop.Instant
    }

    private let contents = Contents()
    private let source: RunLoop.CustomSource

    /// - Parameter perform: called on the inbox's loop with all new batches.
    init(label: String, perform: @escaping @Sendable ([Batch]) -> Void) {
        source = RunLoop.CustomSource(
            label: label,
            // Listing 3-4: the source reports to its users which loops it is on…
            schedule: { [contents] loop, _ in contents.state.withLock { $0.loops.append(loop) } },
            // …Listing 3-6: …and which it has left.
            cancel: { [contents] loop, _ in
                contents.state.withLock { state in
                    if let index = state.loops.firstIndex(where: { $0 === loop }) { state.loops.remove(at: index) }
                }
            },
            // Listing 3-5.
            perform: { [contents] in perform(contents.takeAll()) })
    }

    /// Listing 3-7.
    func add(to loop: RunLoop) {
        loop.add(source)
    }

    /// Listing 3-9, fireCommandsOnRunLoop. Thread-safe. Signaling a source does not wake the loop, so both calls
    /// are needed, in this order. Several batches before the next pass are one perform.
    func hand(_ batch: Batch) {
        let loops = contents.state.withLock { state in
            state.batches.append(batch)
            return state.loops
        }
        source.signal()
        for loop in loops { loop.wakeUp() }
    }

    func close() {
        source.invalidate()
    }

    /// Separate from the inbox, because the source's closures are made before the inbox is initialized.
    private final class Contents: Sendable {
        struct State {
            var batches: [Batch] = []
            var loops: [RunLoop] = []
        }
        let state = Locked(State())

        func takeAll() -> [Batch] {
            state.withLock { state in
                defer { state.batches = [] }
                return state.batches
            }
        }
    }
}
