// The comparison itself: a trace that is not as told fails the test, on whichever side.

internal import Testing

@Suite struct HarnessTests {
    @Test func `a trace that is not as told is complained about, with the name of whoever left it`() throws {
        let right = (did: "E X", wasToDo: "E X")
        let wrong = (did: "E T X", wasToDo: "E X")
        #expect(complaint(cf: right, ours: right, because: nil) == nil)
        #expect(try #require(complaint(cf: wrong, ours: right, because: nil)).hasPrefix("CFRunLoop does not do what we say it does\n"))
        #expect(try #require(complaint(cf: right, ours: wrong, because: "1.6")).hasPrefix("ours is wrong (differs on purpose: 1.6)\n"))
        #expect(try #require(complaint(cf: wrong, ours: wrong, because: nil)).contains("E T X"))
    }

    @Test func `a complaint counts if it is there however slowly the scenario is played`() {
        #expect(complaintOfSlowest { $0 == 1 ? "too fast" : nil } == nil)
        #expect(complaintOfSlowest { "wrong at \($0)" } == "wrong at 400.0")
    }

    @Test func `a stretched scenario reads its own time`() {
        let stage = Stage(OurEngine(), stretch: 50)
        stage.timer("t", in: 1_000)
        #expect((1_000...2_000).contains(stage.nextFire("t")))
    }

    @Test func `what is called in no order is recorded in alphabetical order, after what was there`() throws {
        try both("z a b c") { s in
            s.note("z")
            s.sorted { for word in ["c", "a", "b"] { s.note(word) } }
        }
    }

    @Test func `other threads of a scenario have a loop of their own and the same items and trace`() throws {
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
