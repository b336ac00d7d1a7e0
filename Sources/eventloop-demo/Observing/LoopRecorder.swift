// Records all loops of the process at once, and turns what was recorded into a page or a trace.

import EventLoop

/// Thread-safe. One recording at a time: a second one would restart the first.
final class LoopRecorder: Sendable {
    typealias NamedLoop = (name: String, loop: RunLoop)
    typealias NamedRecording = (name: String, recording: RunLoop.Recording)

    /// Events of each loop: a second or two of a busy server, and a page of a megabyte.
    static let capacity = 8_192

    private let loops: Locked<[NamedLoop]> = Locked([])
    private let isBusy = Locked(false)

    /// Which loops are recorded, and under which names.
    func setLoops(_ named: [NamedLoop]) { loops.withLock { $0 = named } }

    /// False if a recording is in progress.
    func start(capacity: Int = LoopRecorder.capacity) -> Bool {
        let isFirst = isBusy.withLock { isBusy in
            defer { isBusy = true }
            return !isBusy
        }
        guard isFirst else { return false }
        for (_, loop) in loops.withLock({ $0 }) where loop.isValid { loop.startRecording(capacity: capacity) }
        return true
    }

    func stop() -> [NamedRecording] {
        let recordings = loops.withLock { $0 }.compactMap { name, loop in loop.stopRecording().map { (name: name, recording: $0) } }
        isBusy.withLock { $0 = false }
        return recordings
    }

    static func page(_ title: String, _ recordings: [NamedRecording]) -> String {
        RunLoop.Recording.timelineHTML(title: title, recordings)
    }

    static func trace(_ recordings: [NamedRecording]) -> String { RunLoop.Recording.traceEventJSON(recordings) }
}
