// When NIO sleeps, and when it works: its passes, as spans of the run loop's recordings and for its watchdogs.
//
// NIO says of a pass only when it is over, and only to a delegate that its group was made with. So the reader stands around NIO's epoll_wait:
// CHostPasses. It is there while somebody observes the run loop; a loop that nobody observes has no part in this.
//
// Lifecycle of the memory that C has: made by `init`, and freed by `deinit`, on the event loop's thread: the channel releases
// the reader when the observation ends, and a task of NIO when the host ends.

#if NIO && os(Linux)

internal import CHostPasses
import EventLoop
import NIOCore

/// Reports NIO's passes until `end`. Made, used and released on the event loop's thread.
final class PassReader {
    private let hosted: RunLoop.HostedLoop
    private let memory = UnsafeMutablePointer<CHostPassesReader>.allocate(capacity: 1)
    private var isOver = false

    /// Nil if NIO's calls cannot be seen: in a program that is linked without shared libraries, and with ThreadSanitizer, which replaces them.
    static func start(of eventLoop: any NIOCore.EventLoop, waitingOn set: Int32, hosting hosted: RunLoop.HostedLoop) -> PassReader? {
        // The class of the event loop is in the object that has NIO's code.
        let address = unsafeBitCast(type(of: eventLoop as AnyObject), to: UnsafeRawPointer.self)
        return chost_passes_prepare(address) ? PassReader(waitingOn: set, hosting: hosted) : nil
    }

    private init(waitingOn set: Int32, hosting hosted: RunLoop.HostedLoop) {
        self.hosted = hosted
        memory.initialize(
            to: CHostPassesReader(
                will_wait: { Unmanaged<PassReader>.fromOpaque($0).takeUnretainedValue().hosted.hostEndsPass() },
                did_wait: { Unmanaged<PassReader>.fromOpaque($0).takeUnretainedValue().hosted.hostBeginsPass(label: "NIO") },
                context: Unmanaged.passUnretained(self).toOpaque(), set: set))
        chost_passes_set_reader(memory)
    }

    deinit {
        end()
        memory.deallocate()
    }

    /// Reports no more passes. Outside every callout of the run loop: the span of a pass ends after those inside.
    func end() {
        // The next host of the thread may have a reader by now.
        if isOver { return }
        isOver = true
        chost_passes_set_reader(nil)
        hosted.hostEndsPass()
    }
}

#endif
