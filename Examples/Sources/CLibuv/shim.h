#include <features.h>
#include <uv.h>

// Whether a watcher was started that the kernel does not know of yet: libuv registers it inside the next uv_run. From version 1.45 on,
// uv_backend_timeout returns 0 then; before, nothing says so but this queue, which is empty if it leads to itself.
static inline int clibuv_has_new_watchers(const uv_loop_t *loop) {
    const void *queue = &loop->watcher_queue;
    return *(const void *const *)queue != queue;
}
