// All small worlds: every action on every kind of item, from every callout, on the item itself and on a second item that is ready in the
// same pass, before or after it. A model of the rules (Model.swift), written from docs/semantics.md and docs/run-sequence.md, gives each
// world's expected behavior. Claims.swift has the claims that hold in every world.
//
// The short form plays each world of one action once, in one of its eight variants (with or without observers, in runs that return after a
// source or do not, in modes that are kept from being empty or are not), and few worlds of the other kinds: enough that a change of a rule which
// the model does not know is noticed. The long form, `make worlds`, plays all variants, and all worlds.

import Testing

@Suite struct SmallWorldsTests {
    @Test func `every action from every callout does what the rules say`() throws {
        let worlds = Worlds.singles
        if playsAllWorlds {
            try checkAll(worlds.count * 8, { Worlds.variants(worlds[$0 / 8])[$0 % 8] }, check)
        } else {
            try checkAll(worlds.count / worldsStep, { Worlds.variants(worlds[$0 * worldsStep])[$0 % 8] }, check)
        }
    }

    @Test func `every two actions from every callout do what the rules say`() throws { try checkSome(of: Worlds.pairs) }

    @Test func `every action on items that are in two modes does what the rules say`() throws { try checkSome(of: Worlds.inBothModes) }

    @Test func `every action from a run nested in another item's callout does what the rules say`() throws {
        try checkSome(of: Worlds.nested)
    }

    /// One in 97, which shares no factor with the enumeration's dimensions; all of them in the long form.
    private func checkSome(of worlds: [World]) throws {
        let step = playsAllWorlds ? 1 : 97 * worldsStep
        try checkAll(worlds.count / step, { Worlds.variants(worlds[$0 * step])[$0 % 8] }, check)
    }

    @Test func `a world that breaks a rule is reported`() throws {
        let world = World(items: [Item("a", .source), Item("b", .timer)], hooks: [Hook("a", [.invalidate("b")])])
        let other = World(items: [Item("a", .source), Item("b", .timer)], hooks: [Hook("a", [.remove("b")])])
        let complaint = compare(try playOnLoop(world), with: other)
        #expect(complaint?.contains("the rules say") == true)
    }
}
