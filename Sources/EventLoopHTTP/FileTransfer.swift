// Large files go from the kernel's cache to the socket, without a copy in this process.
//
// Lifecycle of the descriptor: a duplicate of the stream's, made by `init` and closed with the object, so that what is sent and watched here
// stays open when the stream ends meanwhile. Nothing of the stream waits to be sent while this sends.

#if HTTP && os(Linux)

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

final class FileTransfer: Sendable {
    private let socket: Int32
    private let loop: RunLoop
    private let mode: RunLoop.Mode

    /// So much in one call: others are served in between.
    private static var pieceSize: Int { 1 << 20 }

    /// Nil if the stream has ended, or if it still sends what was written before.
    init?(_ stream: ByteStream, mode: RunLoop.Mode) {
        guard stream.bytesWaiting == 0 else { return nil }
        let copy = stream.withDescriptor { fcntl($0, F_DUPFD_CLOEXEC, 0) } ?? -1
        guard copy >= 0 else { return nil }
        (socket, loop, self.mode) = (copy, stream.loop, mode)
    }

    deinit { cplatform_close(socket) }

    /// Sends the file. Returns how far it came: to the end, or to where the kernel cannot send this kind of file. Throws
    /// `ClientGone` also if the client takes nothing for `patience`.
    func send(_ file: OpenFile, patience: Duration) async throws -> Int { /* DOES CALLOUT */
        var (offset, isLate) = (0, false)
        while offset < file.size {  // ends: each iteration sends something, waits for room, or throws
            try Task.checkCancellation()
            let count = Self.withoutPipeSignal { file.send(to: socket, from: offset, upTo: min(Self.pieceSize, file.size - offset)) }
            switch count {
            case 0: throw FileError.system("the file has become shorter while it was sent")
            case 1...:
                (offset, isLate) = (offset + count, false)
                await Task.yield()
            case -Int(EAGAIN):
                if isLate { throw ClientGone() }
                isLate = try await !waitForRoom(patience)
            case -Int(EINTR): continue
            case -Int(EINVAL), -Int(ENOSYS): return offset
            case -Int(EIO), -Int(ENOMEM): throw FileError.system("sendfile: " + String(cString: strerror(Int32(-count))))
            // The others are errors of the connection.
            default: throw ClientGone()
            }
        }
        return offset
    }

    /// The call has no flag for it: blocks SIGPIPE, and takes one that is pending because of the call.
    private static func withoutPipeSignal(_ body: () -> Int) -> Int {
        var (pipe, old, pending) = (sigset_t(), sigset_t(), sigset_t())
        sigemptyset(&pipe)
        sigaddset(&pipe, SIGPIPE)
        sigpending(&pending)
        if sigismember(&pending, SIGPIPE) == 1 { return body() }  // it was blocked before
        pthread_sigmask(SIG_BLOCK, &pipe, &old)
        let result = body()
        if result == -Int(EPIPE) {
            var now = timespec()
            // Ends: the signal is pending, or was ignored. If the wait is interrupted before it takes the signal, this ends the process below.
            while sigtimedwait(&pipe, nil, &now) < 0 && errno == EINTR {}
        }
        pthread_sigmask(SIG_SETMASK, &old, nil)
        return result
    }

    /// False if the kernel has reported none in time. It reports room only when much of the buffer is free, so a slow client may have made less.
    private func waitForRoom(_ patience: Duration) async throws -> Bool { /* DOES CALLOUT */
        let wait = TaskWait<Bool>()
        let source = try RunLoop.DescriptorSource(descriptor: socket, events: .write, label: "a file of an HTTP server") { _, _ in
            wait.deliver(true)
        }
        let timer = RunLoop.Timer(after: patience, label: "a client that takes no file") { _ in wait.deliver(false) }
        defer {
            source.invalidate()
            timer.invalidate()
        }
        // A loop that has ended, and a task that was cancelled, are found out by the next call.
        if Task.isCancelled || !loop.add(source, forMode: mode) { return true }
        loop.add(timer, forMode: mode)
        return await wait.outcome(until: nil) { wait.deliver(true) }
    }
}

extension OpenFile {
    /// How many bytes the kernel has taken, or a negative errno.
    fileprivate func send(to socket: Int32, from offset: Int, upTo count: Int) -> Int {
        var offset = off_t(offset)
        let result = sendfile(socket, descriptor, &offset, count)
        return result < 0 ? -Int(errno) : result
    }
}

#endif
