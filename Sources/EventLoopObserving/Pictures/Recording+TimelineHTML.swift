// Recordings as one HTML page.

public import EventLoop

extension RunLoop.Recording {
    /// One page that shows the recording in any browser: the timeline, the slowest callouts, where the time went, and how long the loop stayed
    /// away from the kernel. It explains its terms.
    ///
    /// The page contains everything it needs, requests nothing, and works from a file. Labels and titles may contain anything: the page
    /// shows them as text. Thread-safe; calls nobody. Takes time and memory linear in the number of events, about 16 bytes for each.
    public func timelineHTML(title: String = "Run loop") -> String { Self.timelineHTML(title: title, [(name: title, recording: self)]) }

    /// Several loops on one time axis, with arrows from what posted a closure, a signal or a message to the callout that delivered it.
    ///
    /// `name` says on the page which loop it is. A page may have several recordings of one loop. Otherwise like `timelineHTML(title:)`.
    public static func timelineHTML(title: String = "Run loops", _ recordings: [(name: String, recording: RunLoop.Recording)]) -> String {
        TimelinePage.html(title: title, Timeline(recordings))
    }
}
