// File descriptors that came with a message.
//
// Lifecycle of a descriptor: made by the kernel when the message was received, owned by the object until somebody takes it, closed with the
// object otherwise.

extension RunLoop {
    /// File descriptors that came with a message; new ones, close-on-exec, for files that the sender has open.
    ///
    /// What nobody takes is closed with this object, by a thread of the library's if that may block. Thread-safe.
    public final class PassedDescriptors: Sendable {
        private let untaken: ForkAwareMutex<[Int32?]>
        private let sender: Int32
        /// How many came, taken or not.
        public let count: Int

        static let none = PassedDescriptors([], from: 0)

        /// - Parameter sender: the id of the process that sent them.
        init(_ descriptors: [Int32], from sender: Int32) {
            self.sender = sender
            count = descriptors.count
            untaken = ForkAwareMutex(descriptors)
        }

        deinit {
            for case let descriptor? in untaken.withLockUnlessInherited({ $0 }) ?? [] { DescriptorCloser.close(descriptor, from: sender) }
        }

        /// The descriptor at `index`, in the order of sending, which is the caller's to close from now on; nil when it was taken before.
        /// An index that is not there is a precondition failure.
        public func take(_ index: Int) -> Int32? {
            precondition(index >= 0 && index < count, "\(count) descriptors came with the message; there is none at \(index)")
            return untaken.withLock { untaken in
                defer { untaken[index] = nil }
                return untaken[index]
            }
        }
    }
}
