// Starts other programs, waits for them, and times them.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int wait_for(pid_t child, int *status) {
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return -errno;
    *status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return 0;
}

int perf_run(char *const arguments[], int output, int *status) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    pid_t child;
    int code = posix_spawn(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return code != 0 ? -code : wait_for(child, status);
}

int64_t perf_start_and_wait_ns(const char *path) {
    char *arguments[] = {(char *)path, NULL};
    int64_t begin = perf_wall_ns();
    pid_t child;
    int status;
    if (posix_spawn(&child, path, NULL, NULL, arguments, environ) != 0) return -1;
    if (wait_for(child, &status) != 0 || status != 0) return -1;
    return perf_wall_ns() - begin;
}

// MARK: A partner

int perf_partner_start(char *const arguments[], int *process) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) return -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // The copy is not close-on-exec, unless the number is the same; then it must be moved away first.
    int given = ends[1] == PERF_PARTNER_SOCKET ? fcntl(ends[1], F_DUPFD_CLOEXEC, PERF_PARTNER_SOCKET + 1) : ends[1];
    posix_spawn_file_actions_adddup2(&actions, given, PERF_PARTNER_SOCKET);
    pid_t child = -1;
    int code = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (given != ends[1]) close(given);
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        errno = code;
        return -1;
    }
    *process = child;
    return ends[0];
}

bool perf_partner_is_ready(int socket) {
    char byte;
    ssize_t count;
    do count = read(socket, &byte, 1);
    while (count < 0 && errno == EINTR);
    return count == 1;
}

void perf_partner_say_ready(void) { (void)!write(PERF_PARTNER_SOCKET, "", 1); }

void perf_partner_end(int socket, int process) {
    int status;
    close(socket);
    wait_for(process, &status);
}
