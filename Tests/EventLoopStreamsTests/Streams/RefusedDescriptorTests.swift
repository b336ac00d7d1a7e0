// Rule proved here (DescriptorSide.swift): a descriptor of which no stream can be made is closed once. A second close would close what
// another thread has opened under the same number meanwhile.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory)) struct RefusedDescriptorTests {
    @Test func `a refused descriptor is closed once`() async {
        await #expect(processExitsWith: .success) {
            let (isOver, thread) = (Box(false), try RunLoopThread(name: "loop"))
            // Opens and closes descriptors, which get the numbers that the other thread has just closed.
            let opener = plainThread {
                var lost = 0
                while !isOver.value {  // ends: with the other thread's work
                    let descriptor = dup(STDIN_FILENO)
                    breathe()
                    if close(descriptor) != 0 { lost += 1 }
                }
                return lost
            }
            for _ in 0..<5_000 {
                // Not connected.
                let descriptor = rawSocket()
                #expect(throws: RunLoop.SourceError.system(operation: "getpeername of descriptor \(descriptor)", errno: ENOTCONN)) {
                    try ByteStream(adopting: descriptor, on: thread.runLoop)
                }
            }
            isOver.value = true
            #expect(try opener.join() == 0)
        }
    }
}
