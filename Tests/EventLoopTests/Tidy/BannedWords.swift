// The words that pages and comments avoid, because English for engineers has a standard term for what they are meant to say; and the names that
// hid such a term in the code. Add a word here when a reader stumbles over it.

struct BannedWord: Sendable {
    /// Its forms; a form is a word or several.
    let forms: [String]
    let instead: String
    /// Phrases in which it is the standard word.
    var allowed: [String] = []

    static let all = [
        BannedWord(
            forms: ["tell", "tells", "telling", "told"], instead: "notify, report, say, signal; \"stopped\" for \"told to stop\"",
            allowed: ["cannot tell", "can tell", "told from", "told apart", "far as the clock can tell"]),  // to distinguish
        BannedWord(forms: ["bury", "buries", "buried"], instead: "reap a child, release an object"),
        BannedWord(forms: ["go round", "goes round", "going round", "went round"], instead: "wrap around, make another pass"),
        BannedWord(
            forms: ["hand out", "hands out", "handing out", "handed out", "hands it out", "hands them out"],
            instead: "deliver, return, pass"),
        BannedWord(forms: ["let go of", "lets go of", "letting go of"], instead: "release"),
        BannedWord(forms: ["stand in for", "stands in for", "stood in for"], instead: "replace, represent"),
        BannedWord(forms: ["lend", "lends", "lending", "lent"], instead: "pass, borrow"),
        BannedWord(forms: ["come to stand", "comes to stand", "came to stand"], instead: "is, is put"),
        BannedWord(forms: ["be had", "is had", "are had"], instead: "is available"),
        BannedWord(forms: ["anew"], instead: "again, from the beginning"),
        BannedWord(forms: ["whoever"], instead: "the actor: the caller, the owner, the peer"),
        BannedWord(forms: ["so neither does", "so neither do", "so neither a"], instead: "a sentence with its subject first"),
        BannedWord(forms: ["mailbox", "mailboxes"], instead: "channel, port, queue"),
        BannedWord(forms: ["tidings"], instead: "wake-up, notification"),
    ]

    /// Earlier names, which code must not use again. Two ideas shared each of them, or it hid the standard term.
    static let names: [Substring: String] = [
        "servePorts": "serveDescriptors", "Gate": "Latch", "Mailbox": "SingleElementChannel", "Guarded": "Mutex", "Fifo": "Deque",
        "ObjectList": "UnorderedBag", "Tidings": "DeferredWakeUps", "AfterEnd": "OrphanedJobExecutor", "lookAgain": "recheckQueues",
        "hasNews": "hasPendingWork", "owed": "mainQueueDrain", "guessIsRight": "readLastActive", "stranger": "reusedDescriptor",
    ]
}
