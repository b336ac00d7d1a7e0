// Plays a structure and its model (a simple, slow version of it) side by side: with random operations, and with every short sequence of
// operations.

/// Vigna's SplitMix64: a seed gives the same numbers on every machine.
public struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    public init(seed: UInt64) { state = seed }

    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// A number from zero up to but not including `bound`. Its bias is too small to matter to a test.
    public mutating func below(_ bound: Int) -> Int { Int(truncatingIfNeeded: next() % UInt64(bound)) }

    public mutating func pick<Element>(_ choices: [Element]) -> Element { choices[below(choices.count)] }
}

/// A structure and its model gave different answers.
public struct Divergence: Error, CustomStringConvertible {
    public let description: String
    public init(_ description: String) { self.description = description }
}

/// Throws if the structure's answer differs from the model's. Cheaper than `#expect`, because plays compare a million times.
public func agree<Answer: Equatable>(_ structure: Answer, _ model: Answer, _ question: @autoclosure () -> String) throws(Divergence) {
    if structure != model { throw Divergence("\(question()): the structure says \(structure), the model \(model)") }
}

/// A structure with its model. One value is played from its beginning to its end.
public protocol ModelPlay: ~Copyable {
    /// Creates an empty structure. `random` may choose the sizes of the play.
    init(_ random: inout SplitMix64)

    /// Applies one random operation to both, and throws a `Divergence` if their answers differ.
    mutating func step(_ random: inout SplitMix64) throws

    /// Compares the remaining elements after the last step.
    mutating func finish() throws
}

/// Plays `steps` random operations for each seed. The error names the seed and the step.
public func playRandomly<Play: ModelPlay & ~Copyable>(_: Play.Type, seeds: Range<UInt64>, steps: Int) throws(Divergence) {
    for seed in seeds {
        var random = SplitMix64(seed: seed)
        var play = Play(&random)
        for step in 0..<steps {
            do { try play.step(&random) } catch { throw Divergence("seed \(seed), step \(step): \(error)") }
        }
        do { try play.finish() } catch { throw Divergence("seed \(seed), at the end: \(error)") }
    }
}

/// A structure with its model, and a small set of operations, numbered from zero.
public protocol EnumerablePlay: ~Copyable {
    static var operationCount: Int { get }

    /// Creates the structure in one of the starting states, numbered from zero.
    init(start: Int)

    /// Applies one operation to both, and throws a `Divergence` if their answers differ.
    mutating func perform(_ operation: Int) throws

    mutating func finish() throws
}

/// Plays every sequence of `length` operations from every starting state. A shorter sequence is the beginning of a longer one, and answers
/// are compared at every operation, so this covers the shorter ones. The error names the sequence. Returns the number of sequences.
@discardableResult
public func playAllSequences<Play: EnumerablePlay & ~Copyable>(_: Play.Type, length: Int, starts: Int = 1) throws(Divergence) -> Int {
    var played = 0
    for start in 0..<starts {
        var sequence = [Int](repeating: 0, count: length)
        repeat {  // ends: after the last sequence
            var play = Play(start: start)
            do {
                for operation in sequence { try play.perform(operation) }
                try play.finish()
            } catch {
                throw Divergence("start \(start), operations \(sequence): \(error)")
            }
            played += 1
        } while advance(&sequence, base: Play.operationCount)
    }
    return played
}

/// Increments a number with digits of the given base. Returns false after the last number.
private func advance(_ digits: inout [Int], base: Int) -> Bool {
    for index in digits.indices {
        digits[index] += 1
        if digits[index] < base { return true }
        digits[index] = 0
    }
    return false
}

/// An element that counts the living elements of its kind, for structures that move their elements.
public final class CountedElement: Sendable {
    public let id: Int
    private let alive: Box<Int>

    public init(_ id: Int, alive: Box<Int>) {
        (self.id, self.alive) = (id, alive)
        alive.increment()
    }

    deinit { alive.change { $0 -= 1 } }
}
