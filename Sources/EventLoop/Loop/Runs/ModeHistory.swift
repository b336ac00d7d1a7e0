// Which modes have run since the loop last looked.

/// Knows whether a run continues in the mode that ran before. Owning thread only.
struct ModeHistory {
    /// Counts the changes from one mode to another.
    private(set) var phase: UInt32 = 0
    /// The only mode that has run in this phase; -1 if there were several.
    private var lastIndex = -1

    /// A run of a mode begins. True if other modes may have run since that mode ran last.
    @inline(__always)
    mutating func beginRun(inMode index: Int, isNested: Bool) -> Bool {
        if !isNested && lastIndex == index { return false }
        lastIndex = isNested ? -1 : index
        phase &+= 1
        return true
    }
}
