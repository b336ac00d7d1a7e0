// A custom input source that hands work from one thread to another: the Guide's Listings 3-3 to 3-9.
//
// The Guide's RunLoopSource keeps a command buffer that any thread may add to, and performs what is in it
// on the loop it was added to. Here the commands are batches: "loop 2 has answered 256 more requests".

import EventLoop
import Synchronization

final class Inbox: Sendable {
    struct Batch: Sendable {
        /// The number of the server loop that hands it over.
        var host: Int
        var requests: UInt64
        var handedOverAt: RunLoop.Instant
    }

    private let contents = Contents()
    private let source: RunLoop.CustomSource

    /// - Parameter perform: called on the loop that the inbox is added to, with all that has come in since.
    init(label: String, perform: @escaping @Sendable ([Batch]) -> Void) {
        source = RunLoop.CustomSource(
            label: label,
            // Listing 3-4: the source tells those who use it which loops it lives on…
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

    /// Listing 3-9, fireCommandsOnRunLoop: thread-safe. Signalling marks the source and wakes nobody, so both
    /// calls are needed, in this order. Any number of batches before the loop comes round are one perform.
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

    /// Apart from the inbox itself, so that the source's closures need not wait for the inbox to be complete.
    private final class Contents: Sendable {
        struct State {
            var batches: [Batch] = []
            var loops: [RunLoop] = []
        }
        let state = Mutex(State())

        func takeAll() -> [Batch] {
            state.withLock { state in
                defer { state.batches = [] }
                return state.batches
            }
        }
    }
}
