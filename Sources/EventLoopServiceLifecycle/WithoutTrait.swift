// What a program sees that imports this module and has not enabled its trait: an error that says so.

#if !ServiceLifecycle
@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"ServiceLifecycle\"])")
public struct RunLoopService {}

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"ServiceLifecycle\"])")
public struct StreamService {}
#endif

#if !(ServiceLifecycle && HTTP)
@available(*, unavailable, message: "enable the traits: .package(url: …, traits: [\"HTTP\", \"ServiceLifecycle\"])")
public struct HTTPService {}
#endif
