// Which sanitizer the process runs under.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

public let isUnderThreadSanitizer = dlsym(nil, "__tsan_init") != nil
public let isUnderAddressSanitizer = dlsym(nil, "__asan_init") != nil
