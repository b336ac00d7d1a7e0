// Addresses of code on a stack, for the files that walk stacks.

#ifndef EVENTLOOP_CODE_ADDRESSES_H
#define EVENTLOOP_CODE_ADDRESSES_H

#include <stdint.h>

// A return address may carry a signature above the address.
static inline uint64_t plain_code_address(uint64_t address) {
#if defined(__aarch64__)
    return address & 0x0000FFFFFFFFFFFF;
#else
    return address;
#endif
}

#endif
