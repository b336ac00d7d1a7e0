// A run loop on the thread of one of NIO's own event loops. StepChannel.swift has how NIO sleeps for both.

#if NIO && os(Linux)

public import EventLoop
import Glibc
public import NIOCore
public import NIOPosix
import Synchronization

/// One of NIO's own event loops, whose thread also serves a run loop: NIO sleeps for both.
///
/// Everything written for NIO takes `eventLoop` as its group. Timers, sources, actors and C libraries of `runLoop` are on the same thread; on
/// the main thread, so is `@MainActor`. NIO's events and passes of the run loop take turns: a turn of NIO has one pass of the run loop. An
/// idle run loop does not wake NIO.
///
/// Without `end()` the run loop stays hosted until the event loop is shut down; the host need not be retained. A channel handler that
/// blocks delays the run loop, and a handler of the run loop that blocks delays NIO. CFRunLoop has no counterpart.
public final class NIOHost: Sendable {
    /// NIO's own event loop.
    public let eventLoop: any NIOCore.EventLoop
    /// The loop of the event loop's thread.
    public let runLoop: RunLoop
    let channel: StepChannel

    private init(on eventLoop: any NIOCore.EventLoop, mode: RunLoop.Mode) throws(RunLoop.SourceError) {
        self.eventLoop = eventLoop
        runLoop = .current
        channel = try StepChannel(on: eventLoop, mode: mode)
    }

    /// Has the event loop serve the run loop of its thread, in `mode`.
    ///
    /// Callable from any task. Throws `SourceError.system`: EALREADY if the event loop has a host; ENOTSUP if the event loop is not one of
    /// `MultiThreadedEventLoopGroup`, or if NIO does not wait with epoll; ESHUTDOWN if the event loop is shut down or does so meanwhile;
    /// EMFILE and others if descriptors are short. Waits until the event loop has time. A mode that other code hosts is a precondition
    /// failure.
    public static func start(on eventLoop: any NIOCore.EventLoop, mode: RunLoop.Mode = .default) async throws -> NIOHost {
        if NIOPipeBootstrap(validatingGroup: eventLoop) == nil { throw notSupported }
        return try await withCheckedThrowingContinuation { continuation in
            let request = OneAnswer(continuation)
            // NIO drops the closure if the event loop is shut down.
            eventLoop.execute { request.resume(with: Result { try NIOHost(on: eventLoop, mode: mode) }) }
        }
    }

    /// Has every event loop of the group serve the run loop of its thread: all of them, or none if one throws.
    ///
    /// The errors are those of `start(on:mode:)`. If the call throws, the hosts that it had started have ended.
    public static func start(
        onAllOf group: MultiThreadedEventLoopGroup, mode: RunLoop.Mode = .default
    ) async throws -> [NIOHost] {
        var hosts: [NIOHost] = []
        do {
            for eventLoop in group.makeIterator() { hosts.append(try await start(on: eventLoop, mode: mode)) }
        } catch {
            for host in hosts { await host.end() }
            throw error
        }
        return hosts
    }

    /// Makes the calling thread an event loop of NIO that serves the thread's run loop, calls `body` there, and returns when the event loop
    /// has been shut down.
    ///
    /// On the main thread the run loop is the main loop, so `@MainActor` runs. `eventLoop.shutdownGracefully()` ends it, from any thread; a
    /// signal does not, unless code handles the signal. Throws what `body` throws, and the errors of `start(on:mode:)`; the event loop is
    /// shut down then. On the thread of an event loop it is a precondition failure. If the thread is a `RunLoopThread`'s, its `stop()` ends the
    /// host, and waits until the event loop has been shut down.
    public static func run(mode: RunLoop.Mode = .default, _ body: @escaping @Sendable (NIOHost) throws -> Void) throws {
        precondition(
            MultiThreadedEventLoopGroup.currentEventLoop == nil, "this thread is an event loop of NIO already; use NIOHost.start(on:)")
        let outcome = Outcome()
        MultiThreadedEventLoopGroup.withCurrentThreadAsEventLoop { eventLoop in
            do {
                try body(try NIOHost(on: eventLoop, mode: mode))
            } catch {
                outcome.error.withLock { $0 = error }
                eventLoop.shutdownGracefully { _ in }
            }
        }
        if let error = outcome.error.withLock({ $0 }) { throw error }
    }

    /// The run loop is its thread's again. Returns when it is.
    ///
    /// Safe to call twice, when the event loop has been shut down, and on the event loop's own executor. On the event loop's thread it does not
    /// suspend. So a task on the run loop itself may call it: it goes on in the run in progress, and the thread then goes on as NIO's. Nobody
    /// runs the loop then, so a task of the loop that suspends afterwards waits until somebody does.
    public func end(isolation: isolated (any Actor)? = #isolation) async {
        if channel.isOver { return }
        // The thread itself does not suspend here: the way back to an actor of the loop may lead through Swift's pool, and nobody would run the
        // loop when the actor's job arrives.
        if eventLoop.inEventLoop { return channel.end() }
        let channel = channel
        let _: Void? = try? await withCheckedThrowingContinuation { continuation in
            let request = OneAnswer(continuation)
            eventLoop.execute {
                channel.end()
                request.resume(with: .success(()))
            }
        }
    }
}

let notSupported = RunLoop.SourceError.system(operation: "hosting a run loop on an event loop", errno: ENOTSUP)

private final class Outcome: Sendable {
    let error = Mutex<(any Error)?>(nil)
}

/// Resumes its continuation once: with an answer, or with ESHUTDOWN when the last reference goes.
final class OneAnswer<Value: Sendable>: Sendable {
    private let continuation: Mutex<CheckedContinuation<Value, any Error>?>

    init(_ continuation: CheckedContinuation<Value, any Error>) { self.continuation = Mutex(continuation) }

    func resume(with result: sending Result<Value, any Error>) { take()?.resume(with: result) }

    private func take() -> CheckedContinuation<Value, any Error>? {
        continuation.withLock { continuation in
            defer { continuation = nil }
            return continuation
        }
    }

    deinit {
        take()?.resume(
            throwing: RunLoop.SourceError.system(operation: "hosting a run loop on an event loop", errno: ESHUTDOWN))
    }
}

#endif
