// libevent's own messages go to a handler, when somebody sets one (semantics 12).

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct LibeventLogTests {
    @Test func `a handler gets libevent's warnings, and none once it is taken back`() async {
        // The handler belongs to the process.
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

/// libevent warns of it.
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
