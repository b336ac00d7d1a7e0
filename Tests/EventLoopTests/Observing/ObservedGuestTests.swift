// Rules proved here (semantics 12.12, 23.1):
// - While callouts are observed, the callbacks of C libraries inside the wait are separate from the wait: a recording has them as
//   `hostedLibrary`, inside the sleep, and the watchdog reports one that takes too long.
// - A loop that is observed serves descriptors, timeouts and active events of C libraries, its own items and wake-ups as any other.
// - A callback may run the loop, and end the observation.
// - On a base without an epoll set, the whole wait is one span if a callback ran.

import CLibevent
import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

#if canImport(Glibc)
import Glibc
#endif

@Suite(.bounded, .tags(.threads)) struct ObservedGuestTests {
    private func event(
        on loop: RunLoop, _ pipe: Pipe? = nil, mode: RunLoop.Mode = .default, _ body: @escaping (ForeignEvent) -> Void
    ) -> ForeignEvent {
        loop.withEventBase(forMode: mode) { base in
            ForeignEvent(base, pipe?.readEnd ?? -1, pipe == nil ? EV_PERSIST : EV_READ | EV_PERSIST, body)
        }
    }

    @Test func `a callback of a C library that takes too long is reported once, while it lasts`() throws {
        let stalls = Box<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in
            if stall.kind == .hostedLibrary { stalls.change { $0.append(stall) } }
        }
        let pipe = Pipe()
        try onFreshThread { loop in
            let event = event(on: loop, pipe) { event in
                drain(pipe.readEnd)
                do { try waitUntil("the callback is reported") { !stalls.value.isEmpty } } catch { Issue.record(error) }
                event.remove()
            }
            event.add()
            watchdog.watch(loop)
            // The loop sleeps when the callback is called.
            let writer = plainThread {
                try waitUntil { loop.isWaiting }
                pipe.write()
            }
            _ = loop.run(for: patience)
            try writer.join()
            event.free()
        }
        watchdog.invalidate()
        #expect(stalls.value.count == 1)
        #expect(stalls.value.first?.duration ?? .zero >= .milliseconds(5))
    }

    @Test func `a recording has a span for each call of a C library, inside the sleep`() throws {
        let pipe = Pipe()
        let recording = try onFreshThread { loop in
            let calls = Box(0)
            let event = event(on: loop, pipe) { event in
                drain(pipe.readEnd)
                if calls.increment() == 3 { event.remove() }
            }
            event.add()
            loop.startRecording()
            let writer = plainThread {
                for call in 1...3 {
                    try waitUntil { loop.isWaiting && calls.value == call - 1 }
                    pipe.write()
                    try waitUntil { calls.value == call }
                }
            }
            #expect(loop.run(for: patience) == .finished)
            try writer.join()
            event.free()
            return loop.stopRecording()
        }
        let events = try #require(recording).events
        let calls = events.filter { $0.kind == .hostedLibrary }
        #expect(calls.count == 3)
        let sleeps = events.filter { $0.kind == .sleep }
        for call in calls {
            let isInside = sleeps.contains {
                $0.start <= call.start && call.start.advanced(by: call.duration) <= $0.start.advanced(by: $0.duration)
            }
            #expect(isInside, "\(call)")
            #expect(call.depth == 1 && call.mode == .default && call.label == nil && call.createdAt == nil)
        }
    }

    @Test func `an observed loop serves timeouts of C libraries, its own timers, performs and wake-ups`() throws {
        let recording = try onFreshThread { loop in
            let trace = Trace()
            let idle = Pipe()
            let quiet = event(on: loop, idle) { _ in trace.add("never") }
            quiet.add()
            loop.startRecording()
            let rounds = Box(0)
            let timeout = event(on: loop) { event in
                trace.add("timeout")
                if rounds.increment() == 5 { event.remove() }
            }
            timeout.add(milliseconds: 2)
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            while rounds.value < 5 { #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource) }
            loop.add(
                RunLoop.Timer(after: .milliseconds(3)) { _ in
                    trace.add("timer")
                    loop.stop()
                })
            #expect(loop.run(for: patience) == .stopped)
            let other = plainThread {
                try waitUntil { loop.isWaiting }
                loop.perform {
                    trace.add("perform")
                    loop.stop()
                }
            }
            #expect(loop.run(for: patience) == .stopped)
            try other.join()
            // An event that is active already.
            let active = event(on: loop) { _ in
                trace.add("active")
                loop.stop()
            }
            active.activate()
            #expect(loop.run(for: patience) == .stopped)
            #expect(loop.run(for: .milliseconds(3)) == .timedOut)
            #expect(trace.description == "timeout timeout timeout timeout timeout timer perform active")
            for event in [quiet, timeout, active] { event.free() }
            return loop.stopRecording()
        }
        let calls = try #require(recording).events.filter { $0.kind == .hostedLibrary }
        #expect(calls.count == 6)
    }

    @Test(arguments: [false, true])
    func `a callback may run the loop, and end the observation or begin it`(endsFirst: Bool) throws {
        try onFreshThread { loop in
            let pipe = Pipe()
            let calls = Box(0)
            let event = event(on: loop, pipe) { event in
                drain(pipe.readEnd)
                let alive = loop.keepAlive(forMode: "nested")
                if endsFirst { #expect(loop.stopRecording() != nil) }
                _ = loop.run(mode: "nested", for: .milliseconds(1))
                if !endsFirst { #expect(loop.stopRecording() != nil) }
                loop.startRecording()
                _ = loop.run(mode: "nested", for: .milliseconds(1))
                alive.cancel()
                if calls.increment() == 3 { event.remove() } else { pipe.write() }
            }
            event.add()
            loop.startRecording()
            pipe.write()
            #expect(loop.run(for: patience) == .finished)
            #expect(loop.stopRecording() != nil)
            event.free()
        }
    }

    #if os(Linux)
    @Test(arguments: [false, true])
    func `on a base without an epoll set, the wait is one span if a callback ran`(hasPoll: Bool) async {
        await #expect(processExitsWith: .success) { [hasPoll] in
            setenv("EVENT_NOEPOLL", "1", 1)
            if !hasPoll { setenv("EVENT_NOPOLL", "1", 1) }
            let recording = try onFreshThread { loop in
                let pipe = Pipe()
                let event = loop.withEventBase { base in
                    ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST) { event in
                        drain(pipe.readEnd)
                        event.remove()
                    }
                }
                event.add()
                loop.startRecording()
                let writer = plainThread {
                    try waitUntil { loop.isWaiting }
                    pipe.write()
                }
                #expect(loop.run(for: patience) == .finished)
                try writer.join()
                event.free()
                return loop.stopRecording()
            }
            #expect(recording?.events.filter { $0.kind == .hostedLibrary }.count == 1)
        }
    }
    #endif
}
