// File descriptors that came with a message.
//
// Lifecycle of a descriptor: created by the kernel when the message is received, owned by this object until `take` returns it, and
// otherwise closed when this object is released.

public import EventLoop

extension RunLoop {
    /// File descriptors that came with a message: new close-on-exec descriptors for files that the sender has open.
    ///
    /// When this object is released, a thread of the library closes the descriptors that nobody has taken, because a close may block.
    /// Thread-safe.
    public final class PassedDescriptors: Sendable {
        private let untaken: LoopLock<[Int32?]>
        private let sender: Int32
        /// How many descriptors came with the message, taken or not.
        public let count: Int

        static let none = PassedDescriptors([], from: 0)

        /// - Parameter sender: the id of the process that sent them.
        init(_ descriptors: [Int32], from sender: Int32) {
            self.sender = sender
            count = descriptors.count
            untaken = LoopLock(descriptors)
        }

        deinit {
            for case let descriptor? in untaken.withLockIfOwn({ $0 }) ?? [] { DescriptorCloser.close(descriptor, from: sender) }
        }

        /// Returns the descriptor at `index`, in the order of sending, or nil if it was taken before. The caller closes it.
        ///
        /// - Precondition: `index` is between 0 and `count - 1`.
        public func take(_ index: Int) -> Int32? {
            precondition(index >= 0 && index < count, "index \(index) is out of range: \(count) descriptors came with the message")
            return untaken.withLock { untaken in
                defer { untaken[index] = nil }
                return untaken[index]
            }
        }
    }
}
