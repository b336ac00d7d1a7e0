// Other programs: started, waited for, timed.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <errno.h>
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
