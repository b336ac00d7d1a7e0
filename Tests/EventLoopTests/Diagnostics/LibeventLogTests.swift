// If a handler is set, it receives libevent's own messages (semantics 12).

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

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
}

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
