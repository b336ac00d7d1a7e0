// Tools of all workloads for the real CFRunLoop.
//
// Lifecycle of a handler: CF calls a plain C function with an `info` pointer to a `Handler`. The source retains it through its context, and
// releases it when the source is freed.

import CPerfPeers
import CoreFoundation
import Foundation

/// In files that import Foundation as well, this name would be ambiguous.
import class EventLoop.RunLoop

typealias RunLoop = EventLoop.RunLoop

enum CF {
    final class Handler: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }

        static func call(_ info: UnsafeMutableRawPointer?) {
            Unmanaged<Handler>.fromOpaque(info!).borrowed { $0.body() }
        }
    }

    /// A loop that other threads can wake.
    struct Loop: @unchecked Sendable {
        // SAFETY: the Guide: Core Foundation's run-loop functions are safe on any thread. The loop lives as long as its thread, which
        // outlives the users of this value.
        let loop: CFRunLoop
        init() { loop = CFRunLoopGetCurrent() }

        func stop() { CFRunLoopStop(loop) }
        func wakeUp() { CFRunLoopWakeUp(loop) }
        func perform(_ block: @escaping () -> Void) { CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode, block) }
    }

    /// A source that a thread signals by hand (version 0).
    struct Source: @unchecked Sendable {
        // SAFETY: as in Loop.
        let source: CFRunLoopSource

        init(_ body: @escaping @Sendable () -> Void) {
            var context = CFRunLoopSourceContext()
            let handler = Handler(body)
            context.info = Unmanaged.passUnretained(handler).toOpaque()
            context.retain = { UnsafeRawPointer(Unmanaged<Handler>.fromOpaque($0!).retain().toOpaque()) }
            context.release = { Unmanaged<Handler>.fromOpaque($0!).release() }
            context.perform = { Handler.call($0) }
            source = withExtendedLifetime(handler) { CFRunLoopSourceCreate(nil, 0, &context) }
        }

        func signal() { CFRunLoopSourceSignal(source) }
    }

    /// A source whose port is a plain descriptor (version 1): CFRunLoop waits for it and reads 8 bytes from it.
    final class Port: Sendable {
        private let descriptor: Int32
        private let body: @Sendable () -> Void

        private init(_ descriptor: Int32, _ body: @escaping @Sendable () -> Void) { (self.descriptor, self.body) = (descriptor, body) }

        static func source(_ descriptor: Int32, _ body: @escaping @Sendable () -> Void) -> CFRunLoopSource {
            let port = Port(descriptor, body)
            var context = CFRunLoopSourceContext1()
            context.version = 1
            context.info = Unmanaged.passUnretained(port).toOpaque()
            context.retain = { UnsafeRawPointer(Unmanaged<Port>.fromOpaque($0!).retain().toOpaque()) }
            context.release = { Unmanaged<Port>.fromOpaque($0!).release() }
            context.getPort = { info in Unmanaged<Port>.fromOpaque(info!).borrowed { $0.descriptor } }
            context.perform = { info in Unmanaged<Port>.fromOpaque(info!).borrowed { $0.body() } }
            // CF takes a context of either version through one pointer, and checks its `version`.
            return withUnsafeMutableBytes(of: &context) { bytes in
                withExtendedLifetime(port) {
                    CFRunLoopSourceCreate(nil, 0, bytes.baseAddress!.assumingMemoryBound(to: CFRunLoopSourceContext.self))!
                }
            }
        }
    }

    /// A mode of our own. CF makes it when something is added to it.
    static func mode(_ name: String) -> CFString {
        name.withCString { CFStringCreateWithCString(nil, $0, CFStringBuiltInEncodings.UTF8.rawValue) }
    }
}
