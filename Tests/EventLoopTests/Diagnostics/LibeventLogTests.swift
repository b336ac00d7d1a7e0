// If a handler is set, it receives libevent's own messages (semantics 12).

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct LibeventLogTests {
    @Test func `a handler receives libevent's warnings until it is removed`() async {
        // The handler is global to the process.
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            RunLoop.setLibeventLogHandler { severity, message in
                trace.add("\(severity): \(message.contains("reentrant"))")
            }
            try enterABaseFromItsOwnCallback()
            #expect(trace.take() == "warning: true")
            RunLoop.setLibeventLogHandler(nil)
            try enterABaseFromItsOwnCallback()
            #expect(trace.take() == "")
        }
    }

    #if os(Linux)
    /// As a stream does that changes its events under its lock: a handler that used the stream would wait for itself.
    @Test func `what libevent logs in a change of events that must not call out is passed on at the next safe point`() async {
        // The handler is global to the process.
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let trace = Trace()
                let top = makeEpollSet()
                let source = try RunLoop.DescriptorSource(descriptor: top, events: []) { _, _ in }
                source.onInvalidation { source in trace.add(source.failure == nil ? "invalidated" : "failed") }
                loop.add(source)
                let alive = loop.keepAlive()
                _ = loop.run(for: .zero)
                let sets = nestAsDeepAsPossible(under: top)
                RunLoop.setLibeventLogHandler { severity, message in trace.add("\(severity): \(message.contains("Epoll"))") }
                source.setEventsWithoutCallout(.read)
                #expect(trace.list.isEmpty)
                for _ in 0..<2 { _ = loop.run(for: .zero) }
                #expect(trace.list.sorted() == ["failed", "warning: true"])
                alive.cancel()
                for set in sets + [top] { close(set) }
            }
        }
    }
    #endif
}

#if os(Linux)
// Glibc's overlay names the constants differently in every release.
@_silgen_name("epoll_create1") private func systemEpollCreate(_ flags: Int32) -> Int32
@_silgen_name("epoll_ctl") private func systemEpollControl(_ set: Int32, _ operation: Int32, _ descriptor: Int32, _ event: UnsafeRawPointer)
    -> Int32

private func makeEpollSet() -> Int32 {
    let set = systemEpollCreate(0o2000000)  // EPOLL_CLOEXEC
    precondition(set >= 0, "epoll_create1: errno \(errno)")
    return set
}

/// Has `set` watch `inner`. False if the kernel refuses it.
private func watch(_ inner: Int32, in set: Int32) -> Bool {
    // `struct epoll_event` begins with its events on every platform; the rest is ours.
    var event: (events: UInt32, data: UInt32, more: UInt64) = (1, 0, 0)  // EPOLLIN
    return systemEpollControl(set, 1, inner, &event) == 0  // EPOLL_CTL_ADD
}

/// Puts so many sets into `top`, each inside another, that the kernel refuses to watch `top`. Returns them.
private func nestAsDeepAsPossible(under top: Int32) -> [Int32] {
    var sets = [makeEpollSet()]
    for _ in 0..<64 {  // Linux nests five
        let outer = makeEpollSet()
        sets.append(outer)
        if watch(sets[sets.count - 2], in: outer) { continue }
        // `outer` cannot watch the set before it, and nobody could watch one that has what that has.
        precondition(watch(sets[sets.count - 3], in: top), "epoll_ctl: errno \(errno)")
        return sets
    }
    preconditionFailure("the kernel nests sets without a limit")
}
#endif

/// Causes a warning of libevent.
private func enterABaseFromItsOwnCallback() throws {
    try onFreshThread { loop in
        let pipe = Pipe()
        let event = loop.withEventBase { base in
            ForeignEvent(base, pipe.readEnd, EV_READ) { event in _ = event_base_loop(event.base, EVLOOP_NONBLOCK) }
        }
        event.add()
        pipe.write()
        _ = loop.run(for: .zero)
        event.free()
    }
}
