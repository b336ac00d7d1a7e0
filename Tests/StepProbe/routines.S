// Code to be stepped through, whose unwind tables are exact, missing or wrong. Each `step_` function takes a number and returns one.

#if defined(__linux__) && defined(__x86_64__)
    .text

// Exact tables.
#define NAME(name) name##_exact
#define LOCAL(name) .Lexact_##name
#define CFI(...) __VA_ARGS__
#define ERROR 0
#include "small.inc"
#undef NAME
#undef LOCAL
#undef CFI
#undef ERROR

// No tables.
#define NAME(name) name##_missing
#define LOCAL(name) .Lmissing_##name
#define CFI(...)
#define ERROR 0
#include "small.inc"
#undef NAME
#undef LOCAL
#undef CFI
#undef ERROR

// Tables of another function: every frame is 24 bytes larger than it is, and saved registers are elsewhere.
#define NAME(name) name##_wrong
#define LOCAL(name) .Lwrong_##name
#define CFI(...) __VA_ARGS__
#define ERROR 24
#include "small.inc"

// Assembly whose author described the body and forgot the epilogue.
    .globl step_epilogue
    .type step_epilogue,@function
step_epilogue:
    .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    push %rbx
    .cfi_def_cfa_offset 24
    .cfi_offset %rbx, -24
    mov $0x4141414141414141, %rbp
    mov $-1, %rbx
    sub $128, %rsp
    .cfi_def_cfa_offset 152
    movq $0x42424242, (%rsp)
    movq $8, 120(%rsp)
    add $128, %rsp
    pop %rbx
    pop %rbp
    ret
    .cfi_endproc
    .size step_epilogue, .-step_epilogue

// The frame is where a register says that has anything.
#define IN_REGISTER(name, number, place)                                    \
    .globl name;                                                            \
    .type name,@function;                                                   \
    name: .cfi_startproc;                                                   \
    .cfi_def_cfa number, place;                                             \
    mov $0x7ffffffffff8, %rax; mov $8, %rcx; mov %rsp, %rdx;                \
    push %rbp; mov %rsp, %rbp; mov $-8, %rax; lea 8(%rsp), %rcx;            \
    lea step_rax(%rip), %rax; pop %rbp; ret;                                \
    .cfi_endproc;                                                           \
    .size name, .-name
    IN_REGISTER(step_rax, %rax, 0)
    IN_REGISTER(step_rcx, %rcx, 2147483640)
    IN_REGISTER(step_rdx, %rdx, 8)

// Expressions that never end, read what is not there, take what is not on their stack, or are no expressions.
#define ESCAPED(name, ...)                                                  \
    .globl name;                                                            \
    .type name,@function;                                                   \
    name: .cfi_startproc;                                                   \
    .cfi_escape __VA_ARGS__;                                                \
    push %rbx; mov %rsp, %rbx; xor %eax, %eax; pop %rbx; ret;               \
    .cfi_endproc;                                                           \
    .size name, .-name
    ESCAPED(step_skip, 0x0f, 3, 0x2f, 0xfd, 0xff)
    ESCAPED(step_deref, 0x0f, 3, 0x30, 0x06, 0x06)
    ESCAPED(step_far, 0x0f, 12, 0x0e, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0x06, 0x06, 0x06)
    ESCAPED(step_empty, 0x0f, 0)
    ESCAPED(step_short, 0x0f, 0xff, 0xff, 0xff, 0x7f)
    ESCAPED(step_pick, 0x0f, 4, 0x15, 0x80, 0x22, 0x22)
    ESCAPED(step_unknown, 0x3f)
    ESCAPED(step_restore, 0x0b)
    ESCAPED(step_undefined, 0x07, 16)
    ESCAPED(step_remember, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a)
    ESCAPED(step_itself, 0x0f, 2, 0x77, 0x00, 0x10, 16, 2, 0x77, 0x00)

// Calls its argument's function with a stack pointer and a frame pointer that lead nowhere.
    .globl step_unframed
    .type step_unframed,@function
step_unframed:
    push %rbp
    push %rbx
    mov $0x1000, %rbp
    lea 0x100000(%rsp), %rbp
    mov %rsp, %rbp
    movq %rsp, %rbx
    push %rbp
    mov %rsp, (%rsp)
    mov %rsp, %rbp
    add $8, %rsp
    pop %rbx
    pop %rbp
    ret
    .size step_unframed, .-step_unframed

// What stands above the stack: a chain of frame records that leads here, where nobody has ever been.
    .globl never_called
never_called:
    call never_called
    .globl never_returned
never_returned:
    nop
    ret

    .section .note.GNU-stack,"",@progbits
#endif
