/// Where a variable of a function that the caller calls is on the stack: the more functions the caller was called through, the lower.
@inline(never)
public func placeOnStack() -> UInt {
    var variable: UInt8 = 0
    return withUnsafeMutablePointer(to: &variable) { UInt(bitPattern: $0) }
}
