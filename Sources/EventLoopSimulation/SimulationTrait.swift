// A trait of Swift Testing that runs each test in a simulation, once for each seed.

internal import CSimulation
public import Testing

/// Runs each test in a simulation, once for each seed: see `simulate(seeds:)`.
///
/// For one test write `@Test(.simulated(seeds: 1...1_000))`, for all tests of a suite `@Suite(.simulated())`. The test must be async to have more
/// than one task. Its world is `SimulatedWorld.ofTest`. The test fails with the first `SimulationFailure`.
public struct SimulationTrait: TestTrait, SuiteTrait, TestScoping {
    let seeds: ClosedRange<UInt64>
    let strategy: SimulationStrategy
    let stepLimit: Int
    let allowsEscapes: Bool
    let file: String
    let line: Int

    /// Each test of a suite is simulated by itself.
    public var isRecursive: Bool { true }

    /// Simulates the test.
    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws { /* DOES CALLOUT */
        try await withoutActuallyEscaping(function) { function in
            let test = TestFunction(function)
            test.begin()
            defer { test.end() }
            _ = try await Simulation(
                file: file, line: line, strategy: strategy, stepLimit: stepLimit, allowsEscapes: allowsEscapes,
                body: { world in try await SimulatedWorld.$ofTask.withValue(world) { try await test.call?() } }
            ).run(seeds)
        }
    }

    /// The function of a test, which must not escape: `withoutActuallyEscaping` traps if a reference to it is left.
    ///
    /// A run that failed leaves tasks that never run on, and with them their references. They are counted and given back.
    private final class TestFunction: @unchecked Sendable {
        // SAFETY: the test's task alone writes the variables, before and after the runs.

        /// A closure has two words; passed by itself to a generic function it would be another closure.
        private struct Closure { let call: @Sendable () async throws -> Void }

        private(set) var call: (@Sendable () async throws -> Void)?
        private let context: UnsafeMutableRawPointer?
        private var references = 0

        init(_ call: @escaping @Sendable () async throws -> Void) {
            self.call = call
            context = unsafeBitCast(Closure(call: call), to: (UInt, UnsafeMutableRawPointer?).self).1
        }

        @inline(never) func begin() { references = context.map { csim_reference_count($0) } ?? 0 }

        @inline(never) func end() {
            call = nil
            if let context { csim_release_references(context, references - 1) }
        }
    }
}

extension Trait where Self == SimulationTrait {
    /// Runs each test in a simulation, once for each seed. The parameters are those of `simulate(seeds:)`.
    public static func simulated(
        seeds: ClosedRange<UInt64> = 1...1_000, strategy: SimulationStrategy = .mixed, stepLimit: Int = 1_000_000,
        allowsEscapes: Bool = false,
        file: StaticString = #fileID, line: UInt = #line
    ) -> Self {
        SimulationTrait(
            seeds: seeds, strategy: strategy, stepLimit: stepLimit, allowsEscapes: allowsEscapes, file: "\(file)", line: Int(line))
    }

    /// The same. Swift takes the literals of a range in an attribute for `Int`. A negative seed is a precondition failure.
    public static func simulated(
        seeds: ClosedRange<Int>, strategy: SimulationStrategy = .mixed, stepLimit: Int = 1_000_000, allowsEscapes: Bool = false,
        file: StaticString = #fileID, line: UInt = #line
    ) -> Self {
        precondition(seeds.lowerBound >= 0, "a seed is not negative", file: file, line: line)
        return SimulationTrait(
            seeds: UInt64(seeds.lowerBound)...UInt64(seeds.upperBound), strategy: strategy, stepLimit: stepLimit,
            allowsEscapes: allowsEscapes,
            file: "\(file)", line: Int(line))
    }
}

extension SimulatedWorld {
    @TaskLocal static var ofTask: SimulatedWorld?

    /// The world of the running test, which must have the trait `.simulated`; otherwise a precondition failure.
    public static var ofTest: SimulatedWorld {
        guard let world = ofTask else {
            preconditionFailure("SimulatedWorld.ofTest is for tests with the trait .simulated, and for their tasks")
        }
        return world
    }
}
