// Warnings about likely mistakes for swift-log.

#if Logging

public import EventLoop
public import Logging

extension RunLoop {
    /// Logs the library's warnings about likely mistakes of the program, at the level `warning`. Replaces the handler that
    /// `setWarningHandler` has set; that call with nil ends it. Thread-safe.
    ///
    /// The message is the warning's, and the metadata are its `kind`, and its `label` and `site` if they are known. The logger is called on
    /// the thread that made the mistake.
    public static func logWarnings(to logger: Logger) {
        setWarningHandler { warning in
            var metadata: Logger.Metadata = ["kind": "\(warning.kind.rawValue)"]
            if let label = warning.label { metadata["label"] = "\(label)" }
            if let site = warning.createdAt { metadata["site"] = "\(site)" }
            logger.warning("\(warning.message)", metadata: metadata)
        }
    }
}

#endif
