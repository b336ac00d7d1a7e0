// What a program sees that imports this module and has not enabled its trait: an error that says so.

#if !NIO
@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"NIO\"])")
public final class NIOHost {}
#endif
