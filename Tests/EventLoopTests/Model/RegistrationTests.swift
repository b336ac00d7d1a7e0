// Rules proved here:
// - What an event touches of a registration is one cache line, beside libevent's event.
// - The first base of a source uses the registration in which the source's core is; each further one allocates.
// - The file of a descriptor is checked at the first, second, fourth, eighth … serving, and at every 1,024th.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite struct RegistrationTests {
    @Test func `a registration is two lines, and begins with a line`() {
        #expect(MemoryLayout<Registration>.size == 2 * Registration.lineSize)
        let registration = RegistrationPointer.fake(descriptor: 3)
        defer { registration.freeFake() }
        #expect(UInt(bitPattern: registration) % UInt(Registration.lineSize) == 0)
        let event = UInt(bitPattern: EventRecord.event(registration).raw)
        #expect(event == UInt(bitPattern: registration) + 2 * UInt(Registration.lineSize))
    }

    @Test func `the core begins the second line, and is found from the registration and back`() {
        let core = SourceCorePointer.make(traits: .isWatched)
        defer { core.free() }
        let registration = core.registrationAround
        #expect(registration.core == core)
        #expect(UInt(bitPattern: core) % UInt(Registration.lineSize) == 0)
        // The fields keep their values apart.
        let isSame = withUnsafePointer(to: &registration.pointee.ownCore) { UnsafeRawPointer($0) == UnsafeRawPointer(core) }
        #expect(isSame)
    }

    @Test func `the registration around a core is taken once, until it is given back`() {
        let core = SourceCorePointer.make(traits: .isWatched)
        defer { core.free() }
        let own = core.takeRegistration()
        #expect(own == core.registrationAround)
        #expect(core.takeRegistration() == nil)
        core.giveRegistrationBack()
        #expect(core.takeRegistration() == own)
        core.giveRegistrationBack()
    }

    @Test func `a core that the kernel does not watch has no registration`() {
        let core = SourceCorePointer.make(traits: [])
        #expect(core.takeRegistration() == nil)
        core.free()
    }

    @Test func `the file is checked at the powers of two and at every 1,024th serving`() {
        var countdown = ComparisonCountdown()
        for serving in 1...10_000 {
            let isTime = countdown.countDown()
            #expect(isTime == (serving & (serving - 1) == 0 || serving % 1_024 == 0), "serving \(serving)")
            if isTime { countdown.restart() }
        }
    }
}
