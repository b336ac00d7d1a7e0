// What a handler costs that is called again and again: no call may go through more functions than the calls before it, and none may leave
// memory behind.

public import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#endif

/// Follows the calls of one handler, in a process of its own: how deep in the stack they are, and how much memory is allocated.
///
/// The first third of the calls is for what is made once. The last calls of that third are compared with the last calls of all. Single
/// calls may differ in how the loop comes to them; a handler that is wrapped in another function at each call is deeper by kilobytes.
public final class RepeatedCalls: Sendable {
    /// What may differ between two calls, in bytes: less than one function and the smallest block of memory for each of the calls
    /// between them, of which there are 571 at least.
    public static let allowed = (stack: 4_096, memory: 8_192)

    /// How many calls a test makes.
    public let total: Int

    private struct Calls {
        var count = 0
        /// The lowest of several.
        var earlyPlace = Int.max, latePlace = Int.max
        /// A call may hold memory of its own, another one less: the report of a stall has a backtrace, or none if the thread did not answer in
        /// time. Therefore the most of several early calls, and the least of several late ones.
        var earlyMemory = 0, lateMemory = Int.max
    }
    private let calls = Locked(Calls())

    public init(_ total: Int = 3_000) {
        self.total = total
        // What the first look makes stays.
        _ = allocatedBytes()
    }

    /// For the handler: this is one of its calls.
    public func note() {
        let place = Int(placeOnStack())
        let window = total / 30
        let count = calls.withLock { calls in
            calls.count += 1
            return calls.count
        }
        let isEarly = (total / 3 - window + 1...total / 3).contains(count)
        let isLate = (total - window + 1...total).contains(count)
        guard isEarly || isLate else { return }
        let memory = allocatedBytes()
        calls.withLock { calls in
            if isEarly {
                calls.earlyPlace = min(calls.earlyPlace, place)
                calls.earlyMemory = max(calls.earlyMemory, memory)
            } else {
                calls.latePlace = min(calls.latePlace, place)
                calls.lateMemory = min(calls.lateMemory, memory)
            }
        }
    }

    public var areEnough: Bool { calls.withLock { $0.count >= total } }

    /// By how much the last calls are deeper in the stack than those at the first third, and how many bytes more are allocated.
    public var growth: (stack: Int, memory: Int) {
        calls.withLock { (stack: $0.earlyPlace - $0.latePlace, memory: $0.lateMemory - $0.earlyMemory) }
    }

    public func expectNoGrowth(_ location: SourceLocation = #_sourceLocation) {
        let growth = growth
        #expect(areEnough, "the handler was not called \(total) times", sourceLocation: location)
        // AddressSanitizer may move variables from the stack to the heap, and has a heap of its own, as ThreadSanitizer has.
        #expect(isUnderAddressSanitizer || growth.stack < Self.allowed.stack, "\(growth)", sourceLocation: location)
        #expect(growth.memory < Self.allowed.memory, "\(growth)", sourceLocation: location)
    }

    // MARK: Making the calls

    /// Causes each call, and runs the loop until it has handled a source.
    public func make(on loop: RunLoop, _ cause: () throws -> Void) rethrows {
        for _ in 0..<total {
            try cause()
            _ = loop.run(for: patience, returnAfterSourceHandled: true)
        }
    }

    /// Has `post` queue a closure that has `post` queue the next one, and runs the loop.
    public func makePosted(on loop: RunLoop, _ post: @escaping @Sendable (_ body: @escaping @Sendable () -> Void) -> Void) {
        loop.addIdleSource()
        postNext(on: loop, post)
        _ = loop.run(for: patience)
    }

    private func postNext(on loop: RunLoop, _ post: @escaping @Sendable (_ body: @escaping @Sendable () -> Void) -> Void) {
        post { [self] in
            note()
            if areEnough { loop.stop() } else { postNext(on: loop, post) }
        }
    }
}
