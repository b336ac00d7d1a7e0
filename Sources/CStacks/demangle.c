// Readable names of Swift and C++ functions, by the runtimes of these languages if the process has them.

#include "CStacks.h"

#include <stdlib.h>
#include <string.h>

// With a null buffer they return memory that the caller frees.
extern char *swift_demangle(const char *name, size_t length, char *buffer, size_t *size, uint32_t flags) __attribute__((weak));
extern char *__cxa_demangle(const char *name, char *buffer, size_t *size, int *status) __attribute__((weak));

char *cstacks_demangle(const char *name) {
    if (strncmp(name, "_Z", 2) == 0) return __cxa_demangle ? __cxa_demangle(name, 0, 0, 0) : 0;
    if (name[0] != '$' && name[0] != '_') return 0;
    return swift_demangle ? swift_demangle(name, strlen(name), 0, 0, 0) : 0;
}

void cstacks_free_text(char *text) { free(text); }

void cstacks_free_symbol(struct cstacks_symbol *symbol) {
    free(symbol->name);
    free(symbol->image);
    symbol->name = symbol->image = 0;
}
