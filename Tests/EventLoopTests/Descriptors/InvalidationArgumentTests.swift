// Rules proved here (semantics 4.21):
//  - `onInvalidation` passes the source to its closure, with the source's own type. A closure that uses this argument retains nothing: the
//    loop releases the source when it ends, and the closure closes the descriptor.
//  - The last release passes the source as well.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory)) struct InvalidationArgumentTests {
    @Test func `the end of a loop releases a source whose closure closes the descriptor of its argument`() throws {
        var ends: [Int32] = [-1, -1]
        #expect(closeOnExecPipe(&ends))
        let (reader, writer) = (ends[0], ends[1])
        let observed = try onFreshThread { loop in
            let source = try RunLoop.DescriptorSource(descriptor: reader, events: .read) { _, _ in }
            source.onInvalidation { close($0.descriptor) }
            loop.add(source)
            _ = loop.run(for: .zero)
            return Weakly(source)
        }
        #expect(observed.object == nil)
        // poll(2): POLLERR "is also set for a file descriptor referring to the write end of a pipe when the read end has been closed".
        var entry = pollfd(fd: writer, events: 0, revents: 0)
        #expect(poll(&entry, 1, 0) == 1 && entry.revents & Int16(POLLERR) != 0)
        close(writer)
    }

    @Test func `the last release passes the source as well`() throws {
        let (pipe, trace) = (Pipe(), Trace())
        do {
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, label: "a label") { _, _ in }
            source.onInvalidation { trace.add("\($0.descriptor == pipe.readEnd) \($0.label ?? "") \($0.isValid)") }
        }
        #expect(trace.description == "true a label false")
    }

    @Test func `every kind of source is passed with its own type`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let descriptor = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            descriptor.onInvalidation { trace.add("\($0.descriptor == pipe.readEnd)") }
            let custom = RunLoop.CustomSource(order: 7, perform: {})
            custom.onInvalidation { trace.add("\($0.order)") }
            let signal = try RunLoop.SignalSource(signal: SIGWINCH) { _, _ in }
            signal.onInvalidation { trace.add("\($0.signal == SIGWINCH)") }
            let listener = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, _, _ in }
            listener.onInvalidation { trace.add("\($0.descriptor)") }
            let port = RunLoop.Port(capacity: 3)
            port.onInvalidation { trace.add("\($0.capacity)") }
            for source in [descriptor, custom, signal, listener, port] {
                loop.add(source)
                // The closure's argument is a `RunLoop.Source` here, so that it has only the members that all kinds share.
                source.onInvalidation { trace.add("\($0.failure == nil)") }
                source.invalidate()
            }
            #expect(trace.description == "true true 7 true true true -1 true 3 true")
        }
    }

    @Test func `closures with and without the argument run in the order of their registration, and a late one is called at once`() throws {
        let trace = Trace()
        let source = RunLoop.CustomSource(label: "it", perform: {})
        source.onInvalidation { trace.add("none") }
        source.onInvalidation { _ in trace.add("ignored") }
        source.onInvalidation { trace.add($0.label!) }
        source.onInvalidation { source in trace.add(source.label!) }
        let named: @Sendable () -> Void = { trace.add("value") }
        source.onInvalidation(named)
        source.invalidate()
        source.onInvalidation { trace.add("late \($0.label!)") }
        #expect(trace.description == "none ignored it it value late it")
    }

    @Test func `a signal's previous action is back when the last release passes the source`() async {
        await #expect(processExitsWith: .success) {
            let restored = Box(false)
            do {
                let source = try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in }
                source.onInvalidation {
                    var action = sigaction()
                    sigaction($0.signal, nil, &action)
                    restored.value = action.__sigaction_handler.sa_handler == nil
                }
            }
            #expect(restored.value)
        }
    }
}

/// Carries an object from a thread without retaining it.
private final class Weakly: Sendable {
    private let weakly: Locked<WeakSource>
    init(_ source: RunLoop.DescriptorSource) { weakly = Locked(WeakSource(source)) }
    var object: RunLoop.DescriptorSource? { weakly.withLock { $0.source } }

    private struct WeakSource {
        weak var source: RunLoop.DescriptorSource?
        init(_ source: RunLoop.DescriptorSource) { self.source = source }
    }
}
