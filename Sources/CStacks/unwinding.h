// Walks a copy of a stack. Everything outside the copy is read with the kernel's check, and nothing of the stack outside the copy is.

#ifndef EVENTLOOP_UNWINDING_H
#define EVENTLOOP_UNWINDING_H

#include "CStacks.h"
#include "code_images.h"

// Registers by their numbers in unwind tables.
#if defined(__x86_64__)
enum { CSTACKS_REGISTERS = 17, CSTACKS_FP = 6, CSTACKS_SP = 7 };
#else
enum { CSTACKS_REGISTERS = 33, CSTACKS_FP = 29, CSTACKS_SP = 31 };
#endif

struct cstacks_registers {
    uint64_t pc;
    uint64_t values[CSTACKS_REGISTERS];
    // One bit for each register whose value is known.
    uint64_t known;
};

// How much of a stack is copied at most.
enum { CSTACKS_MOST_BYTES = 256 * 1024 };

// A copy of the upper part of a stack, from the stack pointer on.
struct cstacks_piece {
    const uint64_t *words;
    size_t count;
    // The address of the first word.
    uint64_t begin;
    const struct code_ranges *ranges;
};

// False if the eight bytes at the address are not all in the copy.
bool cstacks_read_word(const struct cstacks_piece *piece, uint64_t address, uint64_t *word);

// MARK: By unwind tables

enum cstacks_step { CSTACKS_STEP_OUTERMOST, CSTACKS_STEP_CALLER, CSTACKS_STEP_UNKNOWN };
struct cstacks_tables;
// Memory for the tables of one walk. Null without memory.
struct cstacks_tables *cstacks_make_tables(void);
void cstacks_free_tables(struct cstacks_tables *tables);
// Replaces the registers by the caller's, as the table of the function says. `*is_exact`: the program counter is that of an interrupted
// instruction, not a return address; afterwards whether the caller's is. What tables say is checked by the caller of this function.
enum cstacks_step cstacks_step_by_table(
    struct cstacks_tables *tables, const struct cstacks_piece *piece, struct cstacks_registers *registers, bool *is_exact);

// MARK: All ways

// Adds the frames, beginning with the program counter's: by unwind tables, where these lead to no return address by frame records, and from
// where both end by searching.
void cstacks_unwind(const struct cstacks_piece *piece, struct cstacks_registers registers, struct cstacks_stack *stack);
// Adds the frames that are found by searching the copy from a word on: what is found before the second frame record is uncertain.
void cstacks_search(const struct cstacks_piece *piece, size_t index, struct cstacks_stack *stack);

#endif
