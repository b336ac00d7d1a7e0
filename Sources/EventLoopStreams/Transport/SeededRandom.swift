// What the transports and networks in memory do by chance: the same seed gives the same on every machine.

/// SplitMix64.
package struct SeededRandom: Sendable {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    package mutating func chance(_ chance: Double) -> Bool { fraction() < chance }

    package mutating func duration(in range: ClosedRange<Duration>) -> Duration {
        range.lowerBound + (range.upperBound - range.lowerBound) * fraction()
    }

    /// At least 0 and less than 1.
    private mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }
}
