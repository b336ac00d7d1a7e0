// The code of docs/corefoundation.md, compiled and run. DocumentedCodeTests compares each block of the page with this file: change both.

import EventLoopCF
import EventLoopTestSupport
import Synchronization
import Testing

/// Counts commands, which other threads announce by a signal.
private final class Commands: Sendable {
    private let pending = Atomic(0)
    let done = Atomic(0)

    func makeSource() -> CFRunLoopSource {
        var context = CFRunLoopSourceContext()
        context.info = Unmanaged.passUnretained(self).toOpaque()
        context.retain = { UnsafeRawPointer(Unmanaged<Commands>.fromOpaque($0!).retain().toOpaque()) }
        context.release = { Unmanaged<Commands>.fromOpaque($0!).release() }
        context.perform = { info in
            let commands = Unmanaged<Commands>.fromOpaque(info!).takeUnretainedValue()
            commands.done.add(commands.pending.exchange(0, ordering: .relaxed), ordering: .relaxed)
            CFRunLoopStop(CFRunLoopGetCurrent())
        }
        return CFRunLoopSourceCreate(kCFAllocatorDefault, 0, &context)
    }

    func add(_ source: CFRunLoopSource, _ runLoop: CFRunLoop) {
        pending.add(1, ordering: .relaxed)
        CFRunLoopSourceSignal(source)
        CFRunLoopWakeUp(runLoop)
    }
}

@Suite struct `Code of the page on Core Foundation's functions` {
    @Test func `another thread announces commands by a signal`() throws {
        try onFreshThread { loop in
            let commands = Commands()
            let source = commands.makeSource()
            CFRunLoopAddSource(CFRunLoopGetCurrent(), source, kCFRunLoopDefaultMode)
            let other = plainThread {
                commands.add(source, loop)
                commands.add(source, loop)
            }
            try other.join()
            CFRunLoopRun()
            #expect(commands.done.load(ordering: .relaxed) == 2)
            CFRunLoopSourceInvalidate(source)
        }
    }
}
