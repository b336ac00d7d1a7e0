// Rules proved here:
// - The loop calls `schedule` once for each (loop, mode) that a source is added to, and `cancel` once for each that it is removed from. It
//   calls them on the caller's thread, after the membership has changed. Adding or removing a second time calls neither.
// - For the common modes, it calls them in the order in which these became common.
// - Invalidating a source calls `cancel` for every mode of every loop, on the caller's thread, for the caller's own loop last. The source is
//   invalid before the first call.
// - No lock is held during either callout.
// - The end of a loop's thread calls `cancel` for every mode, in the same order, on that thread; the source stays valid.

import EventLoop
import EventLoopTestSupport
import Testing

/// A source that records its callouts: `+mode` and `-mode`.
private func recordedSource(_ trace: Trace, perform: @escaping @Sendable () -> Void = {}) -> RunLoop.CustomSource {
    RunLoop.CustomSource(
        schedule: { _, mode in trace.add("+\(mode)") },
        cancel: { _, mode in trace.add("-\(mode)") },
        perform: perform)
}

@Suite(.tags(.lifetimes)) struct `Schedule and cancel` {
    @Test func `are called once for each mode that the source is added to and removed from`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = recordedSource(trace)
            loop.add(source)
            #expect(trace.take() == "+default")
            loop.add(source)
            #expect(trace.take() == "")
            loop.add(source, forMode: "a")
            #expect(trace.take() == "+a")
            loop.remove(source)
            #expect(trace.take() == "-default")
            loop.remove(source)
            #expect(trace.take() == "")
            loop.remove(source, forMode: "a")
            loop.remove(source, forMode: "never")
            #expect(trace.take() == "-a")
            loop.add(source)
            #expect(trace.take() == "+default")
        }
    }

    @Test func `receive the loop`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = RunLoop.CustomSource(
                schedule: { where_, _ in trace.add(where_ === loop ? "here" : "elsewhere") },
                cancel: { where_, _ in trace.add(where_ === loop ? "here" : "elsewhere") },
                perform: {})
            loop.add(source)
            loop.remove(source)
            #expect(trace.take() == "here here")
        }
    }

    @Test func `are called after the membership has changed`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let itself = WeakReference<RunLoop.CustomSource>()
            let source = RunLoop.CustomSource(
                schedule: { loop, mode in trace.add("+\(loop.contains(itself.value!, forMode: mode))") },
                cancel: { loop, mode in trace.add("-\(loop.contains(itself.value!, forMode: mode))") },
                perform: {})
            itself.value = source
            loop.add(source)
            loop.remove(source)
            #expect(trace.take() == "+true -false")
            loop.add(source, forMode: .common)
            loop.addCommonMode("a")
            loop.remove(source, forMode: .common)
            #expect(trace.take() == "+true +true -false -false")
        }
    }

    @Test func `are called once for each common mode`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = recordedSource(trace)
            loop.addCommonMode("a")
            loop.add(source, forMode: .common)
            #expect(trace.list.sorted() == ["+a", "+default"])
            _ = trace.take()
            loop.add(source, forMode: .common)
            loop.add(source)
            #expect(trace.take() == "")
            loop.addCommonMode("b")
            #expect(trace.take() == "+b")
            loop.remove(source, forMode: .common)
            #expect(trace.list.sorted() == ["-a", "-b", "-default"])
        }
    }

    @Test func `are called for the common modes in the order in which they became common, and then for the others`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = recordedSource(trace)
            // The mode "b" is older than "a", and became a common one later.
            let alive = loop.keepAlive(forMode: "b")
            loop.addCommonMode("a")
            loop.addCommonMode("b")
            loop.add(source, forMode: .common)
            #expect(trace.take() == "+default +a +b")
            loop.remove(source, forMode: .common)
            #expect(trace.take() == "-default -a -b")
            loop.add(source, forMode: "c")
            loop.add(source, forMode: .common)
            #expect(trace.take() == "+c +default +a +b")
            source.invalidate()
            #expect(trace.take() == "-default -a -b -c")
            alive.cancel()
        }
    }

    @Test func `are not called again if a mode that already has the source becomes common`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let source = recordedSource(trace)
            loop.add(source, forMode: "a")
            loop.add(source, forMode: .common)
            _ = trace.take()
            loop.addCommonMode("a")
            #expect(trace.take() == "")
        }
    }

    @Test func `are called on the thread that adds and removes`() throws {
        let threads = Box<[UInt]>([])
        let source = RunLoop.CustomSource(
            schedule: { _, _ in threads.value.append(currentThreadID()) },
            cancel: { _, _ in threads.value.append(currentThreadID()) },
            perform: {})
        let running = RunningLoop()
        let caller = try plainThread {
            running.loop.add(source)
            running.loop.remove(source)
            running.loop.add(source)
            source.invalidate()
            return currentThreadID()
        }.join()
        #expect(threads.value == [caller, caller, caller, caller])
        try running.end()
    }

    @Test func `a source may signal itself in its schedule callout`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            let itself = WeakReference<RunLoop.CustomSource>()
            let source = RunLoop.CustomSource(schedule: { _, _ in itself.value!.signal() }, perform: { trace.add("source") })
            itself.value = source
            loop.add(source)
            #expect(source.isSignaled)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source T S W A X")
        }
    }

    // MARK: Invalidating

    @Test func `invalidating calls cancel for every mode and loop, and the source is already invalid`() throws {
        let trace = Trace()
        let itself = WeakReference<RunLoop.CustomSource>()
        let source = RunLoop.CustomSource(
            cancel: { loop, mode in
                let source = itself.value!
                trace.add("\(mode):\(source.isValid):\(source.isSignaled):\(loop.contains(source, forMode: mode))")
            },
            perform: {})
        itself.value = source
        let (first, second) = (RunningLoop(mode: "idle"), RunningLoop(mode: "idle"))
        first.loop.add(source, forMode: "a")
        first.loop.add(source, forMode: "b")
        second.loop.add(source, forMode: "c")
        second.loop.add(source, forMode: .common)
        source.signal()
        source.invalidate()
        #expect(trace.list.sorted() == ["a:false:false:false", "b:false:false:false", "c:false:false:false", "default:false:false:false"])
        _ = trace.take()
        source.invalidate()
        first.loop.remove(source, forMode: "a")
        second.loop.addCommonMode("late")
        #expect(trace.take() == "")
        try first.end()
        try second.end()
    }

    @Test func `invalidating calls cancel for the caller's own loop last, whichever loop the source joined first`() throws {
        let other = RunningLoop(mode: "idle")
        for joinsOwnFirst in [true, false] {
            try onFreshThread { loop in
                let trace = Trace()
                let source = recordedSource(trace)
                if joinsOwnFirst { loop.add(source, forMode: "own") }
                other.loop.add(source, forMode: "other")
                if !joinsOwnFirst { loop.add(source, forMode: "own") }
                _ = trace.take()
                source.invalidate()
                #expect(trace.take() == "-other -own")
            }
        }
        try other.end()
    }

    @Test func `invalidating twice, and signaling or adding afterwards, has no effect`() throws {
        try inManualTime { loop, _, trace in
            let source = recordedSource(trace) { trace.add("performed") }
            loop.add(source)
            source.invalidate()
            #expect(trace.take() == "+default -default")
            source.invalidate()
            source.signal()
            #expect(!source.isSignaled)
            #expect(!loop.add(source))
            #expect(!source.isValid)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `invalidating a source inside its own cancel callout does not recurse`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let itself = WeakReference<RunLoop.CustomSource>()
            let source = RunLoop.CustomSource(
                cancel: { _, mode in
                    trace.add("-\(mode)")
                    itself.value!.invalidate()
                }, perform: {})
            itself.value = source
            loop.add(source)
            source.invalidate()
            #expect(trace.take() == "-default")
        }
    }

    // MARK: No lock is held

    /// Listing 3-6 against Listing 3-9: `cancel` waits for another thread, which at the same time needs the loop. If the callout held the
    /// loop's lock, both threads would wait forever.
    @Test(arguments: ["add", "remove", "invalidate", "add for common", "remove from common", "join", "join from a callout"])
    func `another thread can use the loop and the source during a callout:`(_ way: String) throws {
        try onFreshThread { loop in
            let done = Counter()
            let armed = Box(false)
            let itself = WeakReference<RunLoop.CustomSource>()
            let callout: @Sendable (RunLoop, RunLoop.Mode) -> Void = { loop, _ in
                guard armed.value else { return }
                armed.value = false
                // Another thread makes the calls that could wait for the lock, and this one waits for it. None of the calls throws.
                try! plainThread {
                    let source = itself.value!
                    loop.wakeUp()
                    loop.stop()
                    source.signal()
                    _ = source.isValid
                    let other = RunLoop.CustomSource {}
                    loop.add(other, forMode: "other")
                    _ = loop.contains(source)
                    _ = loop.modes
                    loop.performBlock(inModes: ["other"]) {}
                    loop.addCommonMode("c")
                    other.invalidate()
                    _ = loop.currentMode
                }.join()
                done.increment()
            }
            let source = RunLoop.CustomSource(schedule: callout, cancel: callout, perform: {})
            itself.value = source
            switch way {
            case "add":
                armed.value = true
                loop.add(source)
            case "remove":
                loop.add(source)
                armed.value = true
                loop.remove(source)
            case "invalidate":
                loop.add(source)
                armed.value = true
                source.invalidate()
            case "add for common":
                armed.value = true
                loop.add(source, forMode: .common)
            case "remove from common":
                loop.add(source, forMode: .common)
                armed.value = true
                loop.remove(source, forMode: .common)
            case "join":
                loop.add(source, forMode: .common)
                armed.value = true
                loop.addCommonMode("joined")
            default:
                loop.addIdleSource()
                loop.add(source, forMode: .common)
                loop.atFirst(.beforeTimers) {
                    armed.value = true
                    loop.addCommonMode("joined")
                }
                _ = loop.run(for: .zero)
            }
            #expect(done.value == 1)
            source.invalidate()
        }
    }

    // MARK: The end of the thread

    @Test func `the end of the thread calls cancel for every mode, on that thread`() throws {
        let trace = Trace()
        let threads = Box<Set<UInt>>([])
        let source = RunLoop.CustomSource(
            cancel: { loop, mode in
                trace.add("-\(mode)")
                threads.value.insert(currentThreadID())
            }, perform: { trace.add("performed") })
        let thread = try onFreshThread { loop in
            loop.add(source)
            loop.add(source, forMode: "a")
            loop.addCommonMode("b")
            loop.add(source, forMode: .common)
            source.signal()
            return currentThreadID()
        }
        #expect(trace.list.sorted() == ["-a", "-b", "-default"])
        #expect(threads.value == [thread])
        #expect(source.isValid)
        #expect(source.isSignaled)
        _ = trace.take()
        // The signal is still pending for the next loop.
        try onFreshThread { loop in
            #expect(loop.add(source))
            _ = loop.run(for: .zero)
        }
        #expect(trace.list.first == "performed")
    }

    @Test func `the end of the thread calls cancel in the order in which modes became common, and then for the others`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            // The modes "b" and "c" are older than "a", and "b" became a common one later.
            let alive = loop.keepAlive(forMode: "b")
            let source = recordedSource(trace)
            loop.add(source, forMode: "c")
            loop.addCommonMode("a")
            loop.addCommonMode("b")
            loop.add(source, forMode: .common)
            alive.cancel()
            _ = trace.take()
        }
        #expect(trace.take() == "-default -a -b -c")
    }

    @Test func `the end of one loop leaves the source in another`() throws {
        let trace = Trace()
        let source = recordedSource(trace)
        let running = RunningLoop()
        running.loop.add(source, forMode: "stays")
        try onFreshThread { loop in loop.add(source, forMode: "goes") }
        #expect(trace.take() == "+stays +goes -goes")
        #expect(running.loop.contains(source, forMode: "stays"))
        try running.end()
        #expect(trace.take() == "-stays")
    }
}
