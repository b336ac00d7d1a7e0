// Walks a copy of a stack: see unwinding.h. Runs on the thread that looks.
//
// Three ways, the better one first. Unwind tables are exact for nearly all code, but not for every instruction of it. Frame records, which
// Swift code always has, lead on from code without a table. What neither explains is searched for return addresses, as the stack of a
// sleeping thread is.
//
// Lifecycle of the tables' memory: made and freed in `cstacks_unwind`.

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include "code_addresses.h"
#include "unwinding.h"

#include <string.h>

enum { MOST_UNCERTAIN = 6 };

bool cstacks_read_word(const struct cstacks_piece *piece, uint64_t address, uint64_t *word) {
    uint64_t size = piece->count * 8, offset = address - piece->begin;
    if (address < piece->begin || size < 8 || offset > size - 8) return false;
    memcpy(word, (const char *)piece->words + offset, 8);
    return true;
}

static void add(struct cstacks_stack *stack, uint64_t pc, bool is_uncertain) {
    if (stack->count == CSTACKS_MOST_FRAMES) return;
    stack->is_uncertain[stack->count] = is_uncertain;
    stack->frames[stack->count++] = pc;
}

// MARK: Frame records: the caller's frame pointer and the return address

// The record at the frame pointer, if it is in the copy, not below the stack pointer, and leads upwards to a caller.
static bool read_record(const struct cstacks_piece *piece, const struct cstacks_registers *registers, uint64_t *above, uint64_t *pc) {
    uint64_t fp = registers->values[CSTACKS_FP];
    if (!(registers->known >> CSTACKS_FP & 1) || fp % 8 != 0 || fp < registers->values[CSTACKS_SP]) return false;
    if (!cstacks_read_word(piece, fp, above) || !cstacks_read_word(piece, fp + 8, pc)) return false;
    *pc = plain_code_address(*pc);
    if (*pc == 0) return true;
    if (cstacks_range_of(piece->ranges, *pc - 1)) return cstacks_is_behind_call(piece->ranges, *pc);
    // Code that was made at run time is in no file.
    uint64_t ignored;
    return *pc >= 4096 && *above > fp && *above % 8 == 0 && cstacks_read_word(piece, *above + 8, &ignored);
}

static enum cstacks_step step_by_record(const struct cstacks_piece *piece, struct cstacks_registers *registers) {
    uint64_t above, pc;
    if (!read_record(piece, registers, &above, &pc)) return CSTACKS_STEP_UNKNOWN;
    if (pc == 0) return CSTACKS_STEP_OUTERMOST;
    registers->pc = pc;
    registers->values[CSTACKS_SP] = registers->values[CSTACKS_FP] + 16;
    registers->values[CSTACKS_FP] = above;
    registers->known = (uint64_t)1 << CSTACKS_SP | (uint64_t)1 << CSTACKS_FP;
    return CSTACKS_STEP_CALLER;
}

// MARK: Tables and records

// Whether what a table says of the caller can be: the stack pointer is in the copy and not lower, and the program counter is a return address,
// or that of an instruction which a signal has interrupted.
static bool is_possible(
    const struct cstacks_piece *piece, const struct cstacks_registers *registers, const struct cstacks_registers *caller, bool is_exact) {
    uint64_t sp = caller->values[CSTACKS_SP], ignored, pc;
    if (sp % 8 != 0 || sp < registers->values[CSTACKS_SP] || sp > piece->begin + piece->count * 8) return false;
    if (caller->pc == 0) return true;
    if (caller->pc < 4096) return false;
    if (cstacks_range_of(piece->ranges, caller->pc - 1)) return is_exact || cstacks_is_behind_call(piece->ranges, caller->pc);
    return read_record(piece, caller, &ignored, &pc);
}

void cstacks_unwind(const struct cstacks_piece *piece, struct cstacks_registers registers, struct cstacks_stack *stack) {
    struct cstacks_tables *tables = cstacks_make_tables();
    bool is_exact = true;
    registers.pc = plain_code_address(registers.pc);
    add(stack, registers.pc, false);
    while (stack->count < CSTACKS_MOST_FRAMES) {  // ends: each turn adds a frame or is the last
        struct cstacks_registers caller = registers;
        bool is_callers_exact = is_exact;
        enum cstacks_step step = tables ? cstacks_step_by_table(tables, piece, &caller, &is_callers_exact) : CSTACKS_STEP_UNKNOWN;
        if (step == CSTACKS_STEP_CALLER && !is_possible(piece, &registers, &caller, is_callers_exact)) step = CSTACKS_STEP_UNKNOWN;
        if (step == CSTACKS_STEP_UNKNOWN) {
            caller = registers;
            is_callers_exact = false;
            step = step_by_record(piece, &caller);
        }
        if (step == CSTACKS_STEP_UNKNOWN) cstacks_search(piece, (registers.values[CSTACKS_SP] - piece->begin + 7) / 8, stack);
        if (step != CSTACKS_STEP_CALLER || caller.pc == 0) break;
        add(stack, caller.pc, false);
        registers = caller;
        is_exact = is_callers_exact;
    }
    cstacks_free_tables(tables);
}

// MARK: Searching

// Where a frame record's pointer leads in the copy; 0 if it does not lead upwards in it.
static size_t index_above(const struct cstacks_piece *piece, size_t index, uint64_t pointer) {
    if (pointer % 8 != 0 || pointer <= piece->begin + index * 8) return 0;
    size_t above = (pointer - piece->begin) / 8;
    return above + 1 < piece->count ? above : 0;
}

// A record, whose caller's record is one, too.
static bool is_chain(const struct cstacks_piece *piece, size_t index) {
    for (int level = 0; level < 2; level++) {
        if (index + 1 >= piece->count) return false;
        if (!cstacks_is_behind_call(piece->ranges, plain_code_address(piece->words[index + 1]))) return false;
        index = index_above(piece, index, piece->words[index]);
        if (index == 0) return false;
    }
    return true;
}

// Return addresses between two places of the stack.
static void add_uncertain(const struct cstacks_piece *piece, size_t index, size_t end, struct cstacks_stack *stack) {
    for (int found = 0; index < end && found < MOST_UNCERTAIN; index++) {
        uint64_t pc = plain_code_address(piece->words[index]);
        if (!cstacks_is_behind_call(piece->ranges, pc)) continue;
        add(stack, pc, true);
        found++;
    }
}

void cstacks_search(const struct cstacks_piece *piece, size_t from, struct cstacks_stack *stack) {
    size_t index = from;
    while (index + 1 < piece->count && !is_chain(piece, index)) index++;
    add_uncertain(piece, from, index, stack);
    // Ends: the chain leads upwards. The first record may be an earlier call's, which leads into the chain, too.
    bool is_first = true;
    while (index + 1 < piece->count) {
        uint64_t pc = plain_code_address(piece->words[index + 1]);
        if (!cstacks_is_behind_call(piece->ranges, pc)) break;
        add(stack, pc, is_first);
        size_t above = index_above(piece, index, piece->words[index]);
        if (above == 0) break;
        // C functions without frame pointers, and the function that has called them, have no record.
        if (is_first) add_uncertain(piece, index + 2, above, stack);
        is_first = false;
        index = above;
    }
}

#endif
