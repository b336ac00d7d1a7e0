// What a suite is about, so that the sanitizers run in CI on the suites that they can judge: `Scripts/tagged`, `make test-tsan TAGS=…`.

public import Testing

extension Tag {
    /// Several threads use one object. For ThreadSanitizer, which judges nothing in a child of fork.
    @Tag public static var threads: Self
    /// C memory, borrowed memory, bytes of other processes, or what a child of fork inherits. For AddressSanitizer.
    @Tag public static var memory: Self
    /// Items end, and what they hold is released, at a chosen moment. For both.
    @Tag public static var lifetimes: Self
}
