// Rules proved here (semantics 9.14, 9.15): a process runs short of descriptors. Functions that can throw throw `SourceError.system`. The
// rest continues: timers, performs, stops, limits and sources in every mode, including a mode that has never run.
//
// Each case runs in a process of its own, started by the probe (Tests/FaultProbe): once a second, Dispatch counts its threads in /proc, and
// it ends a process that cannot open a file.

#if os(Linux)

import CLibevent
import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

@Suite struct `A process that runs short of descriptors` {
    @Test func `every scenario with every limit of 4 to 64 descriptors works or throws`() throws {
        try expectSuccess("limits")
    }

    @Test func `a loop without a free descriptor serves everything, and makes its bases as soon as there is room`() throws {
        try expectSuccess("full")
    }

    @Test func `a fatal error of libevent that the library cannot handle ends the process with libevent's last message`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { $0.withEventBase { _ in } }
            // Calls libevent directly, which cannot make its pipe.
            var limit = rlimit(rlim_cur: 0, rlim_max: 0)
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            _ = event_base_new()
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("libevent gave up with code 1: evsig_init_: socketpair: Too many open files"), "\(errors)")
    }

    private func expectSuccess(_ what: String) throws {
        let (status, said) = try runProbe(what)
        #expect(status == 0, "eventloop-fault-probe \(what): status \(status)\n\(said)")
    }
}

/// Runs the program that is next to the tests. Returns its exit status and its output.
private func runProbe(_ what: String) throws -> (status: Int32, said: String) {
    var output: [Int32] = [-1, -1]
    precondition(closeOnExecPipe(&output), "pipe: errno \(errno)")
    defer { close(output[0]) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for standard in [STDOUT_FILENO, STDERR_FILENO] { posix_spawn_file_actions_adddup2(&actions, output[1], standard) }
    let program = folderOfTests() + "/eventloop-fault-probe"
    var arguments = [strdup(program), strdup(what), nil]
    defer { for text in arguments { free(text) } }
    var child = pid_t()
    let code = posix_spawn(&child, program, &actions, nil, &arguments, environ)
    close(output[1])
    try #require(code == 0, "\(program): errno \(code)")
    var said = ""
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {  // ends: with the probe, which limits each of its cases to 30 seconds; otherwise the probe is killed
        var entry = pollfd(fd: output[0], events: Int16(POLLIN), revents: 0)
        let count = poll(&entry, 1, 1_200_000)
        if count < 0 && errno == EINTR { continue }
        if count == 0 {
            kill(child, SIGKILL)
            said += "\nthe probe said nothing for twenty minutes"
        }
        let length = read(output[0], &buffer, buffer.count)
        if length > 0 { said += String(decoding: buffer[..<length], as: UTF8.self) } else if length == 0 || errno != EINTR { break }
    }
    var status: Int32 = 0
    while waitpid(child, &status, 0) < 0 && errno == EINTR {}
    return (status, said)
}

private func folderOfTests() -> String {
    var path = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
    let length = readlink("/proc/self/exe", &path, path.count - 1)
    let whole = String(decoding: path[..<max(length, 0)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return whole.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
}

#endif
