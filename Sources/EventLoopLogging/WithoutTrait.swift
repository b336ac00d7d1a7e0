// What a program sees that imports this module and has not enabled its trait: an error that says so.

#if !Logging
public import EventLoop

extension RunLoop {
    @available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"Logging\"])")
    public static func logWarnings() {}
    @available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"Logging\"])")
    public static func logLibeventMessages() {}
}
#endif
