// Routes that let a client look into the loops.

import CLibevent
import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension HTTPHost {
    enum RecordingForm { case timeline, trace }

    /// /timeline?ms=500 and /trace.json?ms=500: records all loops for so long, and answers with what was recorded.
    func answerWithRecording(_ request: OpaquePointer, _ form: RecordingForm) {
        guard let milliseconds = milliseconds(of: request, default: 500, 1...10_000), let recorder = pages.recorder else { return }
        guard recorder.start() else {
            return reply(request, .refused(HTTP_SERVUNAVAIL, "Busy", "Another client is recording; try again in a moment.\n"))
        }
        answer(request, after: milliseconds, label: "end of a recording") { _ in
            let recordings = recorder.stop()
            switch form {
            case .timeline:
                return Content(
                    type: "text/html; charset=utf-8", policy: StatusPage.policy, text: LoopRecorder.page("eventloop-demo", recordings))
            case .trace: return Content(type: "application/json", text: LoopRecorder.trace(recordings))
            }
        }
    }

    /// /stall?ms=400: what a server must not do. Blocks the loop, so that the watchdog and the timeline have something to show.
    func stall(_ request: OpaquePointer) {
        guard let milliseconds = milliseconds(of: request, default: 400, 0...5_000) else { return }
        answer(request, after: 0, label: "a planted stall") { _ in
            let end = RunLoop.Instant.now + .milliseconds(milliseconds)
            while RunLoop.Instant.now < end {}
            return Content(text: "The loop served nobody else for \(milliseconds) ms. /status tells about it.\n")
        }
    }
}
