// A fuzzer that leaks. Scripts/fuzz runs it first: if the leak is not reported, the other fuzzers would not report theirs either.

private final class Leaked {
    // Of a size of its own, so that the report is this object's.
    private let words = [UInt](repeating: 7, count: 1_000)
}

@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOne(_ start: UnsafeRawPointer, _ count: Int) -> CInt {
    _ = Unmanaged.passRetained(Leaked())
    return 0
}
