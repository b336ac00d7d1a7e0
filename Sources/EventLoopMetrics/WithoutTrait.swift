// What a program sees that imports this module and has not enabled its trait: an error that says so.

#if !Metrics
@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"Metrics\"])")
public final class RunLoopMetrics: Sendable {}
#endif
