#include "CPlatform.h"

#if defined(__linux__) && defined(__has_attribute)
#if __has_attribute(swiftcall)
#define HAS_SWIFTCALL 1
#endif
#endif

#if HAS_SWIFTCALL

#include <stdlib.h>

// The runtime's hook (swift/stdlib/public/Concurrency: "swift_task_asyncMainDrainQueue"): a function with the Swift calling convention that
// receives the runtime's own implementation and an override of it, and does not return. Weak: in a runtime without it the address is zero.
extern void *swift_task_asyncMainDrainQueue_hook __attribute__((weak));

static void (*diverted_to)(void);

__attribute__((swiftcall)) static void drain_main(void *original, void *override) {
    (void)original;
    (void)override;
    diverted_to();
    abort();
}

bool cplatform_divert_async_main(void (*drain)(void)) {
    void **hook = &swift_task_asyncMainDrainQueue_hook;
    if (hook == 0) return false;
    if (*hook != 0) return *hook == (void *)drain_main;
    diverted_to = drain;
    *hook = (void *)drain_main;
    return true;
}

#else

bool cplatform_divert_async_main(void (*drain)(void)) {
    (void)drain;
    return false;
}

#endif
