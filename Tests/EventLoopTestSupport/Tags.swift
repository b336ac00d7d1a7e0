// What a suite is about, so that the sanitizers run in CI on the suites that they can judge: `Scripts/tagged`, `make test-tsan TAGS=…`.

public import Testing

extension Tag {
    /// Several threads use one object.
    @Tag public static var threads: Self
    /// C memory, borrowed memory, or bytes of other processes.
    @Tag public static var memory: Self
    /// Items end, and what they hold is released, at a chosen moment.
    @Tag public static var lifetimes: Self
}
