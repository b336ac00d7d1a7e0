// Starts the programs that stand next to the tests and check something in processes of their own.

#if os(Linux)

import EventLoopTestSupport
import Glibc

/// Runs the program that is next to the tests. Returns its exit status and its output.
func runProbe(_ name: String, _ argument: String? = nil) throws -> (status: Int32, said: String) {
    var output: [Int32] = [-1, -1]
    precondition(closeOnExecPipe(&output), "pipe: errno \(errno)")
    defer { close(output[0]) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for standard in [STDOUT_FILENO, STDERR_FILENO] { posix_spawn_file_actions_adddup2(&actions, output[1], standard) }
    let child = spawn(builtProgram(name), argument.map { [$0] } ?? [], &actions)
    close(output[1])
    var said = ""
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {  // ends: with the probe, which limits its cases; otherwise the probe is killed
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

#endif
