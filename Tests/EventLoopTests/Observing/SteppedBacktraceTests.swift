// Rule proved here (semantics 23.11): taking a backtrace never ends or stops the process, whatever instruction the thread is at, whatever the unwind tables
// say of it, and however small its alternate stack is. The program (Tests/StepProbe) steps through code; its long form takes some minutes.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite struct SteppedBacktraceTests {
    @Test func `a backtrace at every instruction ends neither the process nor at a frame outside the stack`() throws {
        let (status, said) = try runProbe("eventloop-step-probe", getenv("EVENTLOOP_ALL_STEPS") == nil ? nil : "--long")
        // 77: this system does not let one process step through another, or has another processor.
        #expect(status == 0 || status == 77 << 8, "eventloop-step-probe: status \(status)\n\(said)")
    }
}

#endif
