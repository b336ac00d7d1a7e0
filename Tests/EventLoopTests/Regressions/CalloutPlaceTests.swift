// Where last callouts are made, and what a run that is nested in one of them finds:
// - The last reference to an item may be that of a queued change. Its release runs user code, which may run the loop: changes are carried out
//   there as anywhere.
// - Outstanding `onInvalidation` calls are made by a nested run (rule 4.20).
// - What a loop performs and releases last is there for a nested run.
// - Timers with equal dates fire in the order in which the dates were set, whatever runs in between (rule 5.4).

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.lifetimes)) struct CalloutPlaceTests {
    /// Runs a closure when it is released.
    private final class Last: Sendable {
        private let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
        deinit { body() }
    }

    @Test(arguments: ["timer", "source", "observer"])
    func `a run in the deinit of an item whose last reference was a queued change serves what is added there:`(_ kind: String) throws {
        let trace = try inManualTime { loop, _, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.perform {
                let captured = Last {
                    let loop = RunLoop.current
                    loop.add(RunLoop.Timer(fireAt: .distantPast) { _ in trace.add("served") })
                    _ = try? plainThread { loop.add(RunLoop.Timer(fireAt: .distantPast) { _ in trace.add("served") }) }.join()
                    _ = loop.run(for: .zero)
                    trace.add("returned")
                }
                // When the other thread has ended, only the owner's queue holds the item, which the owner has seen.
                let item = Box<Item?>(Item(kind, in: loop, holding: captured))
                _ = try? plainThread {
                    item.value?.remove(from: loop)
                    item.value = nil
                }.join()
            }
            _ = loop.run(for: .milliseconds(1))
            _ = loop.run(for: .milliseconds(1))
            return trace.description
        }
        #expect(trace == "served served returned")
    }

    /// An item of a loop.
    private enum Item: Sendable {
        case timer(RunLoop.Timer)
        case source(RunLoop.DescriptorSource)
        case observer(RunLoop.Observer)

        init(_ kind: String, in loop: RunLoop, holding captured: Last) {
            switch kind {
            case "timer":
                let timer = RunLoop.Timer(every: .seconds(1)) { _ in withExtendedLifetime(captured) {} }
                loop.add(timer)
                self = .timer(timer)
            case "source":
                // A pipe can be watched.
                let source = try! readSource(Pipe(), { _ in withExtendedLifetime(captured) {} })
                loop.add(source)
                self = .source(source)
            default:
                let observer = RunLoop.Observer(activities: .exit) { _, _ in withExtendedLifetime(captured) {} }
                loop.add(observer)
                self = .observer(observer)
            }
        }

        func remove(from loop: RunLoop) {
            switch self {
            case .timer(let timer): loop.remove(timer)
            case .source(let source): loop.remove(source)
            case .observer(let observer): loop.remove(observer)
            }
        }
    }

    @Test func `a run nested in an onInvalidation closure calls the closures that are left`() throws {
        let trace = try inManualTime { loop, _, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let sources = ["a", "b"].map { name in
                let source = RunLoop.CustomSource {}
                loop.add(source)
                source.onInvalidation {
                    trace.add("\(name)1(")
                    if name == "a" { _ = RunLoop.current.run(for: .zero) }
                    trace.add(")")
                }
                source.onInvalidation { trace.add("\(name)2") }
                return source
            }
            try plainThread { for source in sources { source.invalidate() } }.join()
            _ = loop.run(for: .zero)
            return trace.description
        }
        #expect(trace == "a1( a2 b1( ) b2 )")
    }

    @Test func `the last closures of a thread are there for a run nested in one of them`() throws {
        let trace = Trace()
        let (entered, go) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "last") { _ in }
        thread.runLoop.perform {
            entered.open()
            go.wait()
        }
        entered.wait()
        thread.runLoop.perform(inModes: ["never run"]) {
            trace.add("first(")
            _ = RunLoop.current.run(for: .zero)
            trace.add(")")
        }
        thread.runLoop.perform(inModes: ["never run"]) { trace.add("second") }
        thread.stop()
        go.open()
        thread.join()
        #expect(trace.description == "first( second )")
    }

    @Test func `timers with equal dates keep their order over a nested run`() throws {
        let trace = try inManualTime { loop, _, trace in
            loop.add(
                RunLoop.Timer(fireAt: .ms(10)) { _ in
                    trace.add("a")
                    loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("c") })
                    // It takes nothing of this mode, but the timers that were not reached go back to the queue.
                    _ = loop.run(mode: "other", for: .zero)
                })
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("b") })
            _ = loop.run(until: .ms(20))
            return trace.description
        }
        #expect(trace == "a b c")
    }
}
