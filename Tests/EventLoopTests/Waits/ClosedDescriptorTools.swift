// What the tests of descriptors that are closed too early share.

import EventLoop
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Leaves the file of a pipe's read end behind in the kernel's set: watches a duplicate with the number `number` or above, closes that, and
/// only then invalidates its source.
func leaveFileBehind(
    of pipe: Pipe, number: Int32, label: String? = nil, file: StaticString = #fileID, line: UInt = #line, in loop: RunLoop,
    handler: @escaping @Sendable () -> Void = {}
) throws {
    let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, number)
    let source = try RunLoop.DescriptorSource(descriptor: number, events: .read, label: label, file: file, line: line) { _, _ in handler() }
    loop.add(source)
    _ = loop.run(for: .zero)
    close(number)
    source.invalidate()
}
