// What ThreadSanitizer must not look at. Without the sanitizer the functions do nothing.

#include "CPlatform.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if __has_feature(thread_sanitizer)

// The sanitizer's runtime has these for programs' annotations (compiler-rt: tsan_interface_ann.cpp). They stop the recording of the calling
// thread's reads and writes, and leave locks and atomics alone.
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

void cplatform_begin_unrecorded_accesses(void) {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void cplatform_end_unrecorded_accesses(void) {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

#else

void cplatform_begin_unrecorded_accesses(void) {}
void cplatform_end_unrecorded_accesses(void) {}

#endif
