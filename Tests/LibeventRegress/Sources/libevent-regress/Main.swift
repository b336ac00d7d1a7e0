// libevent's regression tests, whose bases are run by run loops.
//
//   libevent-regress [OPTION OF LIBEVENT'S TESTS]… [TEST]…

import CLibevent
import CLibeventRegress
import Glibc

@testable import EventLoop

@main
enum Main {
    static func main() {
        // The loop takes over libevent's log when it first meets libevent. The tests have log handlers of their own.
        LibeventRuntime.prepare()
        event_set_log_callback(nil)
        event_set_fatal_callback(nil)
        let arguments = UnsafeRawPointer(CommandLine.unsafeArgv).assumingMemoryBound(to: UnsafePointer<CChar>?.self)
        exit(eventloop_regress_main(CommandLine.argc, arguments))
    }
}
