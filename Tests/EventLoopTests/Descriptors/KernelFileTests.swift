// Files of the kernel that report a change once, to the first who asks (semantics 4.26):
//  - A change calls a source once. One that comes while a one-shot is not armed waits for it.
//  - A change that a loop finds while another loop is in the handler is reported when that call has returned.

#if os(Linux)
import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.tags(.memory), .enabled(if: MountsOfThread.arePossible, "only a privileged process may have mounts of its own"))
struct KernelFileTests {
    private static func poll(_ loop: RunLoop, _ count: Int) {
        for _ in 0..<count { _ = loop.run(for: .zero) }
    }

    /// Calls `body` on a thread that has a list of mounts of its own, with a descriptor of that list.
    private static func onThreadWithMounts(_ body: @escaping @Sendable (RunLoop, MountsOfThread, Int32) throws -> String) throws -> String {
        try onFreshThread { loop in
            let mounts = MountsOfThread()!
            let file = open("/proc/thread-self/mounts", O_RDONLY | O_CLOEXEC)
            precondition(file >= 0)
            defer { close(file) }
            return try body(loop, mounts, file)
        }
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .edge, .oneShot])
    func `a change of the list of mounts calls a source once for each`(trigger: RunLoop.DescriptorSource.Trigger) throws {
        let trace = try Self.onThreadWithMounts { loop, mounts, file in
            let calls = Trace()
            let source = try RunLoop.DescriptorSource(descriptor: file, events: .priority, trigger: trigger) { _, ready in
                calls.add(describe(ready))
            }
            loop.add(source)
            Self.poll(loop, 3)
            for _ in 0..<3 {
                calls.add("change")
                #expect(mounts.change())
                Self.poll(loop, 3)
                if trigger == .oneShot {
                    #expect(mounts.change())
                    Self.poll(loop, 3)
                    calls.add("rearm")
                    source.rearm()
                    Self.poll(loop, 3)
                }
            }
            source.invalidate()
            return calls.description
        }
        // A change while a one-shot is not armed waits for it.
        let expected =
            trigger == .oneShot
            ? "change priority rearm priority change rearm priority change rearm priority"
            : "change priority change priority change priority"
        #expect(trace == expected)
    }

    @Test func `a loop that finds a change while another loop is in the handler reports it afterwards`() throws {
        let other = try RunLoopThread(name: "other")
        defer {
            other.stop()
            #expect(other.join(timeout: patience))
        }
        // The second of two performs comes after everything that was ready before the first.
        let settle: @Sendable () throws -> Void = { for _ in 0..<2 { try other.runLoop.performAndWait {} } }
        let trace = try Self.onThreadWithMounts { loop, mounts, file in
            let calls = Trace()
            let source = try RunLoop.DescriptorSource(descriptor: file, events: .priority) { source, ready in
                calls.add("\(other.runLoop.isCurrent ? "other" : "first")(\(describe(ready)))")
                if other.runLoop.isCurrent { return }
                do {
                    other.runLoop.add(source)
                    try settle()
                    // This thread asks for no report before it returns, so the other one takes it.
                    precondition(mounts.change())
                    try settle()
                    calls.add("return")
                } catch {
                    calls.add("\(error)")
                }
            }
            loop.add(source)
            Self.poll(loop, 3)
            precondition(mounts.change())
            Self.poll(loop, 1)
            try settle()
            source.invalidate()
            // The file is closed when neither loop watches it.
            try settle()
            return calls.description
        }
        #expect(trace == "first(priority) return other(priority)")
    }
}

/// A list of mounts that only the calling thread has, and a change to it. Nil where the process may not have one.
private struct MountsOfThread {
    private typealias Unshare = @convention(c) (Int32) -> Int32
    private typealias Mount =
        @convention(c) @Sendable (UnsafePointer<CChar>?, UnsafePointer<CChar>, UnsafePointer<CChar>?, UInt, UnsafeRawPointer?) -> Int32

    private let mount: Mount

    static let arePossible = (try? onFreshThread { _ in MountsOfThread()?.change() == true }) == true

    init?() {
        guard let unshare = dlsym(nil, "unshare"), let mount = dlsym(nil, "mount") else { return nil }
        self.mount = unsafeBitCast(mount, to: Mount.self)
        // unshare(2): CLONE_NEWNS, which implies CLONE_FS. mount(2): MS_REC and MS_PRIVATE, so that nobody else sees the changes.
        guard unsafeBitCast(unshare, to: Unshare.self)(0x0002_0000) == 0 else { return nil }
        guard self.mount(nil, "/", nil, 1 << 14 | 1 << 18, nil) == 0 else { return nil }
    }

    func change() -> Bool { mount("none", "/tmp", "tmpfs", 0, nil) == 0 }
}
#endif
