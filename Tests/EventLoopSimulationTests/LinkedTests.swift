// Rules: what is outside a simulation is refused with a sentence, and a program that does not link the product has nothing of it.

import EventLoop
import EventLoopSimulation
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

#if os(Linux)
/// What a stranger may keep after the end of a run.
private let kept = Mutex<(world: SimulatedWorld?, process: SimulatedProcess?)>((nil, nil))

@Suite(.whereSimulated, .bounded)
struct LinkedTests {
    private func text(_ result: ExitTest.Result?) -> String { String(decoding: result?.standardErrorContent ?? [], as: UTF8.self) }

    @Test func `the world of a test without the trait is refused`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { _ = SimulatedWorld.ofTest }
        #expect(text(result).contains("SimulatedWorld.ofTest is for tests with the trait .simulated"))
    }

    @Test func `a world that is used after its run is refused`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await simulate(seeds: 1...1) { world in kept.withLock { $0.world = world } }
            _ = kept.withLock { $0.world }?.loop
        }
        #expect(text(result).contains("SimulatedWorld.loop was called outside its simulation"))
    }

    @Test func `a process that is used after its run is refused`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await simulate(seeds: 1...1) { world in
                let process = world.process("one") { _ in }
                kept.withLock { $0.process = process }
            }
            kept.withLock { $0.process }?.crash()
        }
        #expect(text(result).contains("SimulatedProcess.crash was called outside its simulation"))
    }

    @Test func `a program that does not link the product has none of its hooks`() throws {
        let program = try #require(CommandLine.arguments.first)
        let folder = program[..<(try #require(program.lastIndex(of: "/")))]
        #expect(try contains(program, "csim_run_create"), "the search finds nothing")
        var names: [String] = []
        let entries = try #require(opendir(String(folder)))
        defer { closedir(entries) }
        while let entry = readdir(entries) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            if name.hasPrefix("eventloop-"), !name.contains("."), access("\(folder)/\(name)", X_OK) == 0 { names.append(name) }
        }
        #expect(names.contains("eventloop-demo"), "\(names)")
        for name in names { #expect(try !contains("\(folder)/\(name)", "csim_run_"), "\(name)") }
    }

    /// Whether a file has the text somewhere.
    private func contains(_ path: String, _ text: String) throws -> Bool {
        let file = open(path, O_RDONLY)
        try #require(file >= 0, "\(path)")
        defer { close(file) }
        var status = stat()
        try #require(fstat(file, &status) == 0)
        let bytes = try #require(mmap(nil, status.st_size, PROT_READ, MAP_PRIVATE, file, 0))
        defer { munmap(bytes, status.st_size) }
        // The module Glibc lacks it.
        typealias Search = @convention(c) (UnsafeRawPointer, Int, UnsafeRawPointer, Int) -> UnsafeRawPointer?
        let search = unsafeBitCast(dlsym(nil, "memmem"), to: Search.self)
        return text.withCString { search(bytes, status.st_size, $0, strlen($0)) } != nil
    }
}
#endif
