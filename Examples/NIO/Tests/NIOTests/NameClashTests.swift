// Rule proved here (docs/from-nio.md): a file that imports NIO and Foundation names the run loop with one more import.

import EventLoopNIO
import Foundation
import NIOCore
import NIOPosix
import Testing

import class EventLoop.RunLoop

@Suite(.timeLimit(.minutes(5))) struct NameClashTests {
    @Test func `RunLoop is this library's beside NIO and Foundation`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let loop: RunLoop = host.runLoop
            let eventLoop: any EventLoop = host.eventLoop
            #expect(try await loop.performAsync { eventLoop.inEventLoop })
            await host.end()
        }
    }
}
