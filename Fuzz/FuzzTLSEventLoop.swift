// What the TLS engine needs of the module EventLoop, so that the fuzzer compiles without the rest of it. Same names, same cases.

public enum RunLoop {
    public enum SourceError: Error, Sendable, Equatable {
        case loopEnded
        case system(operation: String, errno: Int32)
    }
}
