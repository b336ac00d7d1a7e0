// The system's words for an errno.

#include "CPlatform.h"

#include <errno.h>
#include <string.h>

// The errors of calls that this library makes. glibc's strerrorname_np knows all, but other systems lack it.
#define NAME(code) case code: return #code;
const char *cplatform_error_name(int code) {
    switch (code) {
    NAME(E2BIG) NAME(EACCES) NAME(EADDRINUSE) NAME(EADDRNOTAVAIL) NAME(EAFNOSUPPORT) NAME(EAGAIN) NAME(EALREADY) NAME(EBADF)
    NAME(EBUSY) NAME(ECANCELED) NAME(ECHILD) NAME(ECONNABORTED) NAME(ECONNREFUSED) NAME(ECONNRESET) NAME(EDEADLK)
    NAME(EDESTADDRREQ) NAME(EDQUOT) NAME(EEXIST) NAME(EFAULT) NAME(EFBIG) NAME(EHOSTDOWN) NAME(EHOSTUNREACH) NAME(EINPROGRESS)
    NAME(EINTR) NAME(EINVAL) NAME(EIO) NAME(EISCONN) NAME(EISDIR) NAME(ELOOP) NAME(EMFILE) NAME(EMLINK) NAME(EMSGSIZE)
    NAME(ENAMETOOLONG) NAME(ENETDOWN) NAME(ENETRESET) NAME(ENETUNREACH) NAME(ENFILE) NAME(ENOBUFS) NAME(ENODEV) NAME(ENOENT)
    NAME(ENOLCK) NAME(ENOMEM) NAME(ENOPROTOOPT) NAME(ENOSPC) NAME(ENOSYS) NAME(ENOTCONN) NAME(ENOTDIR) NAME(ENOTEMPTY)
    NAME(ENOTSOCK) NAME(ENOTSUP) NAME(ENOTTY) NAME(ENXIO) NAME(EOVERFLOW) NAME(EPERM) NAME(EPFNOSUPPORT) NAME(EPIPE) NAME(EPROTO)
    NAME(EPROTONOSUPPORT) NAME(EPROTOTYPE) NAME(ERANGE) NAME(EROFS) NAME(ESHUTDOWN) NAME(ESOCKTNOSUPPORT) NAME(ESPIPE) NAME(ESRCH)
    NAME(ESTALE) NAME(ETIMEDOUT) NAME(ETOOMANYREFS) NAME(EUSERS) NAME(EXDEV)
    default: return 0;
    }
}
#undef NAME

// strerror_r has two forms, and the feature macros choose one.
static inline const char *text_of(const char *text, const char *buffer) { (void)buffer; return text; }
static inline const char *text_of_code(int code, const char *buffer) { (void)code; return buffer; }
#define chosen(result, buffer) _Generic((result), char *: text_of, default: text_of_code)(result, buffer)

void cplatform_error_message(int code, char *buffer, unsigned size) {
    char own[256] = "";
    const char *text = chosen(strerror_r(code, own, sizeof(own)), own);
    strncpy(buffer, text, size - 1);
    buffer[size - 1] = 0;
}
