// What tests see of a stream.

extension ByteStream {
    /// How many tasks wait to read, to write, and for the end of writing.
    package var testsOnlyWaiters: (readers: Int, writers: Int, finishers: Int) {
        core.withLock {
            (
                core.locked.receiving.reader == nil ? 0 : 1, core.locked.sending.writers.count(where: \.isTask),
                core.locked.sending.finishers.count
            )
        }
    }

    /// How many bytes are received and not consumed.
    package var testsOnlyBytesHeld: Int { core.withLock { core.locked.receiving.input.count } }
}
