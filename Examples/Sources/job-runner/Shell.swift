// How the job-runner starts a child process.

#if os(Linux)

import EventLoop
import Glibc

/// Starts `/bin/sh FILE` without input, as the first process of a new group. The loop's descriptors are all close-on-exec, and a handled
/// signal has its default action after an exec: the child inherits nothing of the loop.
func spawnShell(_ file: String) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP))
    var words: [UnsafeMutablePointer<CChar>?] = [strdup("sh"), strdup(file), nil]
    defer { for word in words { free(word) } }
    var pid = pid_t()
    let code = posix_spawn(&pid, "/bin/sh", &actions, &attributes, &words, environ)
    guard code == 0 else { throw RunLoop.SourceError.system(operation: "posix_spawn", errno: code) }
    return pid
}

#endif
