// The submodule CLibevent.Threads: event2/thread.h, with a library of its own.

import CLibevent.Threads
import EventLoop
import TestSupport
import Testing

@Suite(.bounded) struct LibeventThreadsTests {
    @Test func `a loop works beside libevent's locks for threads`() async {
        // libevent's locks are for the whole process, and must be there before the first base.
        await #expect(processExitsWith: .success) {
            #expect(evthread_use_pthreads() == 0)
            let result = try onFreshThread { loop in
                loop.withEventBase { _ in }
                loop.perform { loop.stop() }
                return loop.run(for: patience)
            }
            #expect(result == .stopped)
        }
    }
}
