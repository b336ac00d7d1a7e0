// How issues of Swift Testing inside a run reach the test: once.

internal import Testing

enum IssueScope {
    /// Runs `body` so that issues recorded in it are noted by the run. If `silences`, the test does not hear of them.
    static func perform(_ run: SimulatedRun, silences: Bool, _ body: @Sendable () async -> Void) async {
        #if compiler(>=6.3)
        if let test = Test.current {
            let trait: IssueHandlingTrait = .compactMapIssues { [weak run] issue in
                if issue.severity >= .error { run?.noteIssue(SimulatedRun.Problem(issue)) }
                return silences ? nil : issue
            }
            do {
                try await trait.provideScope(for: test, testCase: Test.Case.current) {
                    guard silences else { return await body() }
                    // The innermost of these decides: a `withKnownIssue` around the call of `simulate` hears of no repetition.
                    await withKnownIssue(isIntermittent: true) {
                        await body()
                    } matching: { _ in
                        true
                    }
                }
            } catch {
                // `body` throws nothing.
            }
            return
        }
        #endif
        await body()
    }
}

extension SimulatedRun.Problem {
    fileprivate init(_ issue: Issue) {
        let text = issue.description
        self.init(kind: .issueRecorded, message: text, identity: issue.sourceLocation.map { "\($0)" } ?? text)
    }
}
