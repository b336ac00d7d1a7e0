// The comparison itself: a trace that differs from the expected one fails the test, on either side.

internal import EventLoopTestSupport
internal import Testing

@Suite struct HarnessTests {
    @Test func `an unexpected trace causes a complaint that names the loop that left it`() throws {
        let right = (did: "E X", wasToDo: "E X")
        let wrong = (did: "E T X", wasToDo: "E X")
        #expect(complaint(cf: right, ours: right, names: right, because: nil) == nil)
        #expect(
            try #require(complaint(cf: wrong, ours: right, names: right, because: nil)).hasPrefix(
                "CFRunLoop does not do what we say it does\n"))
        #expect(
            try #require(complaint(cf: right, ours: wrong, names: right, because: "1.6")).hasPrefix(
                "ours is wrong (differs on purpose: 1.6)\n"))
        #expect(try #require(complaint(cf: right, ours: right, names: wrong, because: nil)).hasPrefix("EventLoopCF is wrong\n"))
        #expect(try #require(complaint(cf: wrong, ours: wrong, names: right, because: nil)).contains("E T X"))
    }

    @Test func `a complaint counts if it occurs however slowly the scenario is played`() {
        #expect(complaintOfSlowest { $0 == 1 ? "too fast" : nil } == nil)
        #expect(complaintOfSlowest { "wrong at \($0)" } == "wrong at 400.0")
    }

    @Test func `a stretched scenario reads its own time`() throws {
        let date = try plainThread {
            let stage = Stage(OurEngine(), stretch: 50)
            defer { stage.forgetItems() }
            stage.timer("t", in: 1_000)
            return stage.nextFire("t")
        }.join()
        #expect((1_000...2_000).contains(date))
    }

    @Test func `calls in unspecified order are recorded in alphabetical order, after the words already there`() throws {
        try both("z a b c") { s in
            s.note("z")
            s.sorted { for word in ["c", "a", "b"] { s.note(word) } }
        }
    }

    @Test func `other threads of a scenario have their own loop and share the items and the trace`() throws {
        try both("+a@default other:true -a@default own:false") { s in
            s.watchedSource("a", in: [])
            s.onAnotherThread { other in
                other.add("a")
                other.note("other", other.contains("a"))
            }
            s.note("own", s.contains("a"))
        }
    }
}
