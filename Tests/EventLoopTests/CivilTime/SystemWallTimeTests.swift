// Civil time of the system's clock. The tests that set the clock run only where EVENTLOOP_SETS_CLOCK says so: they need the right to, and
// disturb every other program of the machine.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded, .serialized) struct SystemWallTimeTests {
    @Test func `a timer fires at its date and not before`() throws {
        try onFreshThread { loop in
            let fired = Box<RunLoop.WallTime?>(nil)
            let date = RunLoop.WallTime.now + .milliseconds(30)
            let timer = try RunLoop.WallTimer(fireAt: date) { _ in fired.value = .now }
            loop.add(timer)
            #expect(loop.run(until: .now + patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(fired.value.map { $0 >= date } == true)
            #expect(timer.nextFire == .distantFuture)
        }
    }

    @Test func `another thread's new date reaches a sleeping loop`() throws {
        let ready = Box<RunLoop.WallTimer?>(nil)
        let sleeper = joinableThread { loop in
            let timer = try RunLoop.WallTimer(fireAt: .distantFuture) { _ in loop.stop() }
            loop.add(timer)
            ready.value = timer
            return loop.run(for: patience)
        }
        try waitUntil { ready.value != nil }
        ready.value!.nextFire = .now
        #expect(try sleeper.join() == .stopped)
    }

    @Test func `a cancelled thread that sets a date that has passed leaves no lock held`() async {
        // In a process of its own, which is killed if the lock stays held.
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let (running, fired) = (RunningLoop(), Box(false))
            let timer = try RunLoop.WallTimer(fireAt: .distantFuture) { _ in fired.value = true }
            running.loop.add(timer)
            let cancelled = plainThread {
                pthread_cancel(pthread_self())
                timer.nextFire = RunLoop.WallTime(nanosecondsSince1970: 1)
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
            }
            try cancelled.join()
            try waitUntil("the timer fires") { fired.value }
            timer.nextFire = .distantFuture
            try running.end()
        }
    }

    @Test func `a child of fork does not touch its parent's timer`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let timer = try RunLoop.WallTimer(fireAt: .now + .milliseconds(200)) { _ in loop.stop() }
                loop.add(timer)
                let change = try RunLoop.ClockChangeSource { _, _ in }
                loop.add(change)
                let end = inForkedChild {
                    let before = timer.nextFire
                    timer.nextFire = .distantFuture
                    timer.invalidate()
                    change.invalidate()
                    return before == .distantFuture ? 0 : 1
                }
                #expect(end.status == 0, "\(end)")
                #expect(loop.run(for: patience) == .stopped)
            }
        }
    }

    @Test func `a loop of a child ends an inherited timer that is due, and does not spin`() async {
        await #expect(processExitsWith: .success) {
            let fired = Box(0)
            let timer = try RunLoop.WallTimer(fireAt: .distantFuture) { _ in fired.increment() }
            try onFreshThread { loop in
                loop.add(timer)
                // The descriptor is readable from then on, and the loop does not run.
                timer.nextFire = .now
                expectEndInChild(of: timer, calls: fired)
                #expect(loop.run(until: .now + patience, returnAfterSourceHandled: true) == .handledSource)
            }
            #expect(fired.value == 1)
        }
    }

    @Test func `inherited sources that only the parent may read join no loop of a child, and end there`() async {
        await #expect(processExitsWith: .success) {
            let sources: [RunLoop.Source] = [
                try RunLoop.WallTimer(fireAt: .distantFuture) { _ in }, try RunLoop.ClockChangeSource { _, _ in },
                try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in },
            ]
            let end = inForkedChild {
                let joined = try? onFreshThread { loop in sources.map { loop.add($0) } }
                return joined?.contains(true) == false && sources.allSatisfy { !$0.isValid } ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            #expect(sources.allSatisfy { $0.isValid })
        }
    }

    @Test(.enabled(if: getenv("EVENTLOOP_SETS_CLOCK") != nil))
    func `a clock that is set calls the source with the difference, and moves the timers`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let jumps = Box<[Duration]>([])
            loop.add(
                try RunLoop.ClockChangeSource { _, jump in
                    jumps.change { $0.append(jump) }
                    trace.add("set")
                })
            let timer = try RunLoop.WallTimer(fireAt: .now + .seconds(3)) { _ in trace.add("fired") }
            loop.add(timer)
            #expect(loop.run(for: .milliseconds(20)) == .timedOut)
            setClock(by: 2)
            _ = loop.run(for: .milliseconds(100))
            #expect(trace.take() == "set")
            setClock(by: 2)
            _ = loop.run(for: .milliseconds(100))
            #expect(trace.list.sorted() == ["fired", "set"])
            _ = trace.take()
            // Back again, past the date that has fired, in two steps that are one call.
            timer.nextFire = .now + .seconds(1)
            setClock(by: -1)
            setClock(by: -3)
            _ = loop.run(for: .milliseconds(1_500))
            #expect(trace.take() == "set")
            setClock(by: 0)
            _ = loop.run(for: .milliseconds(50))
            #expect(trace.take() == "")
            for (jump, expected) in zip(jumps.value, [2, 2, -4]) {
                #expect(jump > .seconds(expected) - .milliseconds(10) && jump < .seconds(expected) + .milliseconds(10), "\(jump)")
            }
        }
    }

    @Test(.enabled(if: getenv("EVENTLOOP_SETS_CLOCK") != nil))
    func `a setting whose report a loop in manual time has taken is reported when the source joins a loop in real time`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let source = try RunLoop.ClockChangeSource { _, _ in trace.add("set") }
            try inManualTime { loop, _, _ in
                loop.add(source)
                setClock(by: 2)
                trace.add("\(loop.run(until: .ms(20)))")
                loop.remove(source)
            }
            loop.add(source)
            trace.add("\(loop.run(for: .zero, returnAfterSourceHandled: true))")
            source.invalidate()
            setClock(by: -2)
            return trace.description
        }
        #expect(trace == "timedOut set handledSource")
    }

    private func setClock(by seconds: Int) {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        time.tv_sec += seconds
        #expect(clock_settime(CLOCK_REALTIME, &time) == 0, "errno \(errno)")
    }
}

#endif
