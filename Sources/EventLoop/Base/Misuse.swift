/// Traps with `message` if `condition` is false, in every build. The standard library's functions of these names trap without a message in optimized
/// builds, and those are the builds that users run.
@inline(__always) func precondition(
    _ condition: @autoclosure () -> Bool, _ message: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line
) {
    if !condition() { preconditionFailure(message(), file: file, line: line) }
}

@inline(never) func preconditionFailure(_ message: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line) -> Never {
    fatalError(message(), file: file, line: line)
}
