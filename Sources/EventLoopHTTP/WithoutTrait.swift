// What a program sees that imports this module and has not enabled its trait: an error that says so.

#if !HTTP
@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"HTTP\"])")
public final class HTTPServer {}
#endif
