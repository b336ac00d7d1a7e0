// A caller's mistake is answered with a sentence in every build. The standard library's own functions of these names trap without a
// word where the program is optimised, which is where users meet them.

/// Traps with `message` when `condition` does not hold, optimised or not.
@inline(__always)
func precondition(
    _ condition: @autoclosure () -> Bool, _ message: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line
) {
    if !condition() { preconditionFailure(message(), file: file, line: line) }
}

/// Traps with `message`, optimised or not.
@inline(never)
func preconditionFailure(_ message: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line) -> Never {
    fatalError(message(), file: file, line: line)
}
