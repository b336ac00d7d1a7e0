// Rule proved here: a module's own `Timer` comes before this package's, except inside an extension of `RunLoop`, where a member comes first.

import EventLoop
import EventLoopFoundation
import Testing

private struct Timer {}

extension RunLoop {
    fileprivate static var timerInExtension: ObjectIdentifier { ObjectIdentifier(Timer.self) }
    fileprivate static var qualifiedTimer: ObjectIdentifier { ObjectIdentifier(EventLoopFoundationTests.Timer.self) }
}

@Suite struct ShadowedNameTests {
    @Test func `outside an extension of the loop, a module's own Timer is meant`() {
        #expect(ObjectIdentifier(Timer.self) != ObjectIdentifier(RunLoop.Timer.self))
    }

    @Test func `inside an extension of the loop, Timer is the loop's, and the module's own needs its module's name`() {
        #expect(RunLoop.timerInExtension == ObjectIdentifier(RunLoop.Timer.self))
        #expect(RunLoop.qualifiedTimer == ObjectIdentifier(Timer.self))
    }
}
