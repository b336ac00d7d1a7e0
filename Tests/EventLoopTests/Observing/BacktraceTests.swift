// Rules proved here (semantics 23.7, 23.8):
// - The backtrace of a running thread names the function that it is in, and the functions that called it, in C and in Swift.
// - A thread that sleeps in a system call gets no signal; the first line names the call and its descriptor, the second where it was made.
// - A thread that has ended has no backtrace; neither has one that blocks the signal, and the signal does not reach it later.
// - Other code's handler of SIGURG stays installed, and sees its own signals only.
// - The name of an image without a file is not looked for in the working directory.
// - A loaded file that somebody has truncated does not end the process (23.11).

import CPlatform
import CStacks
import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

#if os(Linux)
import Glibc

/// A thread that is in `stuckInALoop` until the object is released.
private final class SpinningThread: Sendable {
    let id: Int32
    let isOver = Box(false)
    private let thread: JoinableThread<Void>

    init(_ prepare: @escaping @Sendable () -> Void = {}, at end: @escaping @Sendable () -> Void = {}) {
        let published = Box<Int32>(0)
        let ready = Gate()
        let isOver = isOver
        thread = plainThread {
            prepare()
            published.value = cplatform_thread_id()
            ready.open()
            stuckInALoop(isOver)
            end()
        }
        ready.wait()
        id = published.value
    }

    func end() throws {
        isOver.value = true
        try thread.join()
    }
}

@inline(never) private func stuckInALoop(_ isOver: Box<Bool>) {
    while !isOver.value {}
    withExtendedLifetime(isOver) {}
}

@inline(never) private func stuckInARead(_ descriptor: Int32) -> Int {
    var byte: UInt8 = 0
    let count = read(descriptor, &byte, 1)
    return count < 0 ? Int(-errno) : count
}

/// Until the thread sleeps in a call.
private func waitForCall(_ thread: Int32) throws {
    try waitUntil("the thread sleeps in a system call") {
        var activity = cstacks_thread_activity()
        cstacks_thread_activity(thread, &activity)
        return Int(activity.kind) == CSTACKS_THREAD_IN_CALL
    }
}

/// Where the kernel's own image is, which has no file (getauxval(3): AT_SYSINFO_EHDR).
private func kernelImage() -> UInt64? {
    guard let file = fopen("/proc/self/auxv", "r") else { return nil }
    defer { fclose(file) }
    var entry: [UInt64] = [0, 0]
    while fread(&entry, 8, 2, file) == 2 {  // ends: with the file
        if entry[0] == 33 { return entry[1] }
    }
    return nil
}

@Suite(.bounded, .serialized, .tags(.threads)) struct BacktraceTests {
    @Test func `the backtrace of a running thread names its functions, innermost first`() throws {
        let thread = SpinningThread()
        var lines: [String] = []
        // While other threads use the processors, an answer may come too late.
        try waitUntil("the thread answers") {
            lines = Backtrace.lines(of: thread.id)
            return lines.contains { $0.contains("stuckInALoop") }
        }
        try thread.end()
        #expect(lines.enumerated().allSatisfy { $0.element.hasPrefix("#\($0.offset) ") })
        let stuck = try #require(lines.firstIndex { $0.contains("stuckInALoop") })
        #expect(lines[stuck...].contains { $0.contains("closure #1") && $0.contains("SpinningThread") }, "\(lines)")
    }

    @Test func `a thread that reads a descriptor is not disturbed, and its call is named`() throws {
        var ends: [Int32] = [-1, -1]
        try #require(closeOnExecPipe(&ends))
        let (reader, writer) = (ends[0], ends[1])
        let published = Box<Int32>(0)
        let ready = Gate()
        let thread = plainThread {
            published.value = cplatform_thread_id()
            ready.open()
            return stuckInARead(reader)
        }
        ready.wait()
        var lines: [String] = []
        // Before, it may sleep in another call, for a lock of the C library's memory for example.
        try waitUntil("the thread reads") {
            try waitForCall(published.value)
            lines = Backtrace.lines(of: published.value)
            return lines.first == "#0 read(\(reader), …)"
        }
        #expect(lines.contains { $0.contains("stuckInARead") }, "\(lines)")
        #expect(write(writer, "x", 1) == 1)
        #expect(try thread.join() == 1, "the call returned its byte, not EINTR")
        close(reader)
        close(writer)
    }

    @Test func `a thread that has ended has no backtrace`() throws {
        let id = try plainThread { cplatform_thread_id() }.join()
        // A join returns a moment before the kernel removes the thread.
        try waitUntil("the kernel has removed the thread") { cstacks_processor_time(id) == -1 }
        #expect(Backtrace.lines(of: id).isEmpty)
        #expect(Backtrace.lines(of: 0).isEmpty)
    }

    @Test func `an image without a file is not looked for in the working directory`() async {
        await #expect(processExitsWith: .success) {
            guard var address = kernelImage() else { return }
            let directory = OwnDirectory()
            defer { directory.leave() }
            // Who opens it for reading waits for a writer.
            try #require(mkfifo("linux-vdso.so.1", 0o600) == 0)
            var symbol = cstacks_symbol()
            cstacks_symbolize(&address, 1, &symbol)
            #expect(symbol.name == nil)
            cstacks_free_symbol(&symbol)
        }
    }

    @Test func `a loaded file that somebody has truncated does not end the process`() async {
        await #expect(processExitsWith: .success) {
            // Other C libraries do not have this file.
            guard dlopen("libm.so.6", RTLD_NOW) != nil, let original = pathOfLoadedFile("libm.so.6") else { return }
            let directory = makeTemporaryDirectory()
            let path = directory + "/library.so"
            try #require(copyFile(original, to: path))
            // A copy of its own, which nobody else uses.
            let copy = try #require(dlopen(path, RTLD_NOW | RTLD_LOCAL))
            let function = try #require(dlsym(copy, "cos"))
            let (published, gate) = (Box<Int32>(0), Gate())
            let thread = plainThread {
                published.value = cplatform_thread_id()
                gate.wait()
            }
            try waitUntil("the thread is there") { published.value != 0 }
            try waitForCall(published.value)
            try #require(truncate(path, 0) == 0)
            let lines = Backtrace.lines(of: published.value)
            var (address, symbol) = (UInt64(UInt(bitPattern: function)), cstacks_symbol())
            cstacks_symbolize(&address, 1, &symbol)
            gate.open()
            try thread.join()
            removeFlatDirectory(directory)
            // Not `exit`, which would call functions of the truncated file.
            _exit(lines.isEmpty || symbol.name != nil ? 1 : 0)
        }
    }
}

/// As the kernel lists what is mapped, proc(5).
private func pathOfLoadedFile(_ name: String) -> String? {
    guard let list = fopen("/proc/self/maps", "re") else { return nil }
    defer { fclose(list) }
    var line = [CChar](repeating: 0, count: 4_096)
    while fgets(&line, Int32(line.count), list) != nil {  // ends: with the file
        let text = String(decoding: line.prefix { $0 != 0 && $0 != 10 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if text.hasSuffix("/" + name), let start = text.firstIndex(of: "/") { return String(text[start...]) }
    }
    return nil
}

private func copyFile(_ source: String, to target: String) -> Bool {
    guard let input = fopen(source, "re") else { return false }
    defer { fclose(input) }
    guard let output = fopen(target, "we") else { return false }
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    var isCopied = true
    while isCopied, case let count = fread(&buffer, 1, buffer.count, input), count > 0 {  // ends: with the file
        isCopied = fwrite(buffer, 1, count, output) == count
    }
    return fclose(output) == 0 && isCopied
}
#endif
