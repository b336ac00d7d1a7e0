// References to Swift objects that nobody will release: those of a thread that has ended inside a call.

#include "CPlatform.h"

#include <stddef.h>

// Of the Swift runtime. Weak, because programs in C link this target too.
extern size_t swift_retainCount(void *object) __attribute__((weak));
extern void swift_release(void *object) __attribute__((weak));

void cplatform_release_all_but_one(void *object) {
    if (!object || !swift_retainCount || !swift_release) return;
    while (swift_retainCount(object) > 1) swift_release(object);
}
