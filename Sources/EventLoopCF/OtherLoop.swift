// Whether the thread is inside a run of Core Foundation's own loop, which a program may have beside this one: Foundation brings it along.
//
// Nothing here is linked: the functions are looked up in the process. If Foundation is linked statically, they may not be found, and nothing is
// detected.

import EventLoop
import EventLoopLibC

/// The functions of the process's Core Foundation; nil if there is none.
private struct CoreFoundation: Sendable {
    /// The loop of a thread, or nil: unlike CFRunLoopGetCurrent, this makes none.
    let existingLoop: @convention(c) (pthread_t) -> UnsafeRawPointer?
    let copyCurrentMode: @convention(c) (UnsafeRawPointer) -> UnsafeRawPointer?
    let release: @convention(c) (UnsafeRawPointer) -> Void

    init?() {
        #if os(Linux)
        guard let existingLoop = dlsym(nil, "_CFRunLoopGet0b"), let copyCurrentMode = dlsym(nil, "CFRunLoopCopyCurrentMode"),
            let release = dlsym(nil, "CFRelease")
        else { return nil }
        self.existingLoop = unsafeBitCast(existingLoop, to: (@convention(c) (pthread_t) -> UnsafeRawPointer?).self)
        self.copyCurrentMode = unsafeBitCast(copyCurrentMode, to: (@convention(c) (UnsafeRawPointer) -> UnsafeRawPointer?).self)
        self.release = unsafeBitCast(release, to: (@convention(c) (UnsafeRawPointer) -> Void).self)
        #else
        return nil
        #endif
    }

    static let ofProcess = CoreFoundation()
}

/// Whether Core Foundation's loop of the calling thread exists and runs.
var coreFoundationRunsHere: Bool {
    guard let functions = CoreFoundation.ofProcess, let loop = functions.existingLoop(pthread_self()),
        let mode = functions.copyCurrentMode(loop)
    else { return false }
    functions.release(mode)
    return true
}

/// Reports a stop that cannot have been meant: the thread runs Core Foundation's loop, and not `loop`.
func warnIfStopMissesRun(of loop: RunLoop) { /* DOES CALLOUT */
    guard loop.runDepth == 0, loop.isCurrent, coreFoundationRunsHere else { return }
    Warnings.report(
        .otherLoopRuns, loop: loop.id, mode: nil,
        "CFRunLoopStop of EventLoopCF was called for a loop that does not run, while the thread runs Core Foundation's loop; replace that "
            + "run, for example Foundation's RunLoop.run(), by CFRunLoopRun of EventLoopCF")
}
