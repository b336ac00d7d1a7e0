// Sources that the kernel makes ready, in the cases that both loops support: semantics 4, 1.1 and 1.5.
//
// - The sources are on pipes and read eight bytes at a time, because CF itself reads eight bytes before it calls back.
// - CF serves one port in a pass, and always with beforeWaiting and afterWaiting, unless the pass polls. Ours serves all ports that are
//   ready at step 5, at once.

internal import Testing

@Suite struct DescriptorTests {
    @Test func `a port that is ready is served without waiting`() throws {
        try differ(cf: "E T S W A p X =stopped", ours: "E T S p X =stopped", because: "1.1") { s in
            s.observe()
            s.port("p") { _ in s.stop() }
            s.poke("p")
            s.run()
        }
    }

    @Test func `a port that becomes ready ends the sleep`() throws {
        try both("E T S W A p X =stopped") { s in
            s.observe()
            s.port("p") { _ in s.stop() }
            s.whenWaiting { s.poke("p") }
            s.run()
        }
    }

    @Test func `a port is a handled source`() throws {
        try both("E T S W A p X =handledSource") { s in
            s.observe()
            s.port("p")
            s.whenWaiting { s.poke("p") }
            s.run(returnAfterSource: true)
        }
    }

    @Test func `with limit zero a ready port is served without a sleep`() throws {
        try both("E T S p X =handledSource E T S X =timedOut") { s in
            s.observe()
            s.port("p")
            s.poke("p")
            s.run(limit: 0, returnAfterSource: true)
            s.run(limit: 0, returnAfterSource: true)
        }
    }

    @Test func `a run that returns after a source serves one port and leaves the other ready`() throws {
        try both("E T S p X =handledSource E T S q X =handledSource E T S X =timedOut") { s in
            s.observe()
            s.port("p")
            s.port("q")
            s.poke("p", "q")
            for _ in 1...3 { s.run(limit: 0, returnAfterSource: true) }
        }
    }

    @Test func `a pass serves every port that is ready`() throws {
        try differ(cf: "E T S p X =timedOut", ours: "E T S p q X =timedOut", because: "4.1") { s in
            s.observe()
            s.port("p")
            s.port("q")
            s.poke("p", "q")
            s.run(limit: 0)
        }
    }

    @Test func `after a handled custom source the pass still checks once for a ready port before the run returns`() throws {
        try both("E T S a p X =handledSource") { s in
            s.observe()
            s.source("a")
            s.port("p")
            s.signal("a")
            s.poke("p")
            s.run(returnAfterSource: true)
        }
    }

    @Test func `a port keeps its mode from being empty`() throws {
        try both("E T S X =timedOut p-valid:false =finished") { s in
            s.observe()
            s.port("p")
            s.run(limit: 0)
            s.invalidate("p")
            s.askIsValid("p")
            s.run()
        }
    }

    @Test func `a port ready for another mode waits until that mode runs`() throws {
        try both("E T S X =timedOut p m:=timedOut") { s in
            s.observe()
            s.keepAlive()
            s.port("p", in: ["m"])
            s.poke("p")
            s.run(limit: 0)
            s.run("m", limit: 0)
        }
    }

    @Test func `a ready port that was removed is served after it is added again`() throws {
        try both("E T S X =timedOut E T S p X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.port("p")
            s.poke("p")
            s.remove("p")
            s.run(limit: 0)
            s.add("p")
            s.run(limit: 0)
        }
    }

    @Test func `a ready port that a custom source invalidates is not served`() throws {
        try both("E T S a X =timedOut") { s in
            s.observe()
            s.source("a") { _ in s.invalidate("p") }
            s.port("p")
            s.signal("a")
            s.poke("p")
            s.run(limit: 0)
        }
    }

    @Test func `a block queued by a port runs at the end of the pass`() throws {
        try both("E T S p b X =timedOut") { s in
            s.observe()
            s.port("p") { _ in s.block("b") }
            s.poke("p")
            s.run(limit: 0)
        }
    }

    @Test func `a port can run the loop in another mode`() throws {
        try both("E T S W A p a m:=handledSource X =handledSource") { s in
            s.observe()
            s.source("a", in: ["m"])
            s.port("p") { _ in
                s.signal("a")
                s.run("m", returnAfterSource: true)
            }
            s.whenWaiting { s.poke("p") }
            s.run(returnAfterSource: true)
        }
    }

    @Test func `a port in common is served in every common mode`() throws {
        try both("p =timedOut p m:=timedOut") { s in
            s.addCommonMode("m")
            s.port("p", in: ["common"])
            s.poke("p")
            s.run(limit: 0)
            s.poke("p")
            s.run("m", limit: 0)
        }
    }
}
