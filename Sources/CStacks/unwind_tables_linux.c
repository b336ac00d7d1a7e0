// Reads unwind tables: the section .eh_frame of a loaded file, found through .eh_frame_hdr ("Exception Frames" in the Linux Standard Base,
// and "Call Frame Information" in DWARF 5, 6.4).
//
// A table may be inexact (epilogues of assembly), wrong, or gone with its file. So each is copied first, with the kernel's check and within
// the limits of its file, and every read of the copy is checked against its end. What a table leads to is read from the copy of the stack only.
//
// Lifecycle of the tables: `cstacks_make_tables` and `cstacks_free_tables`, on the thread that looks.

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include "code_addresses.h"
#include "unwinding.h"

#include <stdlib.h>
#include <string.h>

// Rows that a program may set aside, and the depth of an expression.
enum { MOST_ENTRY = 32768, MOST_ROWS = 8, MOST_VALUES = 16 };

#if defined(__x86_64__)
enum { RETURN_ADDRESS = 16 };
static const uint64_t preserved_registers = 1 << 3 | 1 << 6 | 0xF << 12;  // rbx, rbp, r12 to r15
#else
enum { RETURN_ADDRESS = 30 };
static const uint64_t preserved_registers = (uint64_t)0x7FF << 19;  // x19 to x29
#endif

// MARK: Bytes, with their end

struct bytes {
    const uint8_t *at, *end;
    // The address that `at` has in the process.
    uint64_t address;
    bool has_failed;
};

static void fail(struct bytes *bytes) {
    bytes->has_failed = true;
    bytes->at = bytes->end;
}

static bool has(struct bytes *bytes, uint64_t count) {
    if ((uint64_t)(bytes->end - bytes->at) >= count) return true;
    fail(bytes);
    return false;
}

static void skip(struct bytes *bytes, uint64_t count) {
    if (!has(bytes, count)) return;
    bytes->at += count;
    bytes->address += count;
}

static uint64_t unsigned_number(struct bytes *bytes, unsigned size) {
    uint64_t value = 0;
    if (!has(bytes, size)) return 0;
    // Both processors are little-endian.
    memcpy(&value, bytes->at, size);
    skip(bytes, size);
    return value;
}

static int64_t signed_number(struct bytes *bytes, unsigned size) {
    unsigned unused = 64 - size * 8;
    return (int64_t)(unsigned_number(bytes, size) << unused) >> unused;
}

static uint64_t leb(struct bytes *bytes, bool is_signed) {
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {  // ends: with the bytes
        byte = (uint8_t)unsigned_number(bytes, 1);
        if (shift < 64) value |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (is_signed && shift < 64 && (byte & 0x40)) value |= ~(uint64_t)0 << shift;
    return value;
}

static uint64_t uleb(struct bytes *bytes) { return leb(bytes, false); }
static int64_t sleb(struct bytes *bytes) { return (int64_t)leb(bytes, true); }

// A pointer in one of its encodings: the lower four bits are the form, the next three what it is relative to.
static uint64_t pointer(struct bytes *bytes, uint8_t encoding) {
    uint64_t place = bytes->address, value;
    switch (encoding & 0x0F) {
    case 0x00: case 0x04: case 0x0C: value = unsigned_number(bytes, 8); break;
    case 0x01: value = uleb(bytes); break;
    case 0x02: value = unsigned_number(bytes, 2); break;
    case 0x03: value = unsigned_number(bytes, 4); break;
    case 0x09: value = (uint64_t)sleb(bytes); break;
    case 0x0A: value = (uint64_t)signed_number(bytes, 2); break;
    case 0x0B: value = (uint64_t)signed_number(bytes, 4); break;
    default: fail(bytes); return 0;
    }
    if ((encoding & 0x70) == 0x10) return value + place;
    if ((encoding & 0x70) != 0) fail(bytes);
    return value;
}

// MARK: The state of a table's program

struct rule {
    enum { UNCHANGED, UNDEFINED, AT_OFFSET, IS_OFFSET, IN_REGISTER, AT_EXPRESSION, IS_EXPRESSION } kind;
    int64_t operand;
    struct bytes expression;
};

// The rules at one instruction. The frame's address is the stack pointer before the call: a register and an offset, or an expression.
struct row {
    struct rule address;
    int64_t address_offset;
    struct rule registers[CSTACKS_REGISTERS];
};

struct common {
    uint64_t code_alignment;
    int64_t data_alignment;
    uint64_t return_address;
    uint8_t pointer_encoding;
    bool has_augmentation, is_signal_frame;
    struct bytes program;
};

struct cstacks_tables {
    uint8_t common_entry[MOST_ENTRY], entry[MOST_ENTRY];
    struct row row, initial, aside[MOST_ROWS];
    int aside_count;
};

struct cstacks_tables *cstacks_make_tables(void) { return malloc(sizeof(struct cstacks_tables)); }
void cstacks_free_tables(struct cstacks_tables *tables) { free(tables); }

// MARK: Finding the entry

// Copies the entry at an address, and returns what is behind its length.
static bool copy_entry(const struct code_range *range, uint64_t address, uint8_t *to, struct bytes *entry) {
    uint32_t length;
    if (address < range->image_begin || address > range->image_end - 8) return false;
    if (cstacks_copy(&length, address, 4) < 4 || length < 8 || length > MOST_ENTRY) return false;
    if (length > range->image_end - address - 4 || cstacks_copy(to, address + 4, length) < length) return false;
    *entry = (struct bytes){to, to + length, address + 4, false};
    return true;
}

// The address of the entry whose function begins last before the address; 0 if there is none. The table has pairs of a function's and an
// entry's place, relative to itself.
static uint64_t entry_for(const struct code_range *range, uint64_t pc) {
    uint8_t header[12];
    if (range->tables_size < sizeof(header) || cstacks_copy(header, range->tables, sizeof(header)) < sizeof(header)) return 0;
    // Version 1, a pointer of four bytes, a count of four bytes, and a table of pairs of four bytes: what all linkers write.
    if (header[0] != 1 || (header[1] & 0x0F) != 0x0B || header[2] != 0x03 || header[3] != 0x3B) return 0;
    uint32_t count;
    memcpy(&count, header + 8, 4);
    if (count > (range->tables_size - sizeof(header)) / 8) return 0;
    uint64_t first = range->tables + sizeof(header), low = 0, high = count;
    int32_t pair[2];
    while (low < high) {  // ends: the two approach each other
        uint64_t middle = low + (high - low) / 2;
        if (cstacks_copy(pair, first + middle * 8, 8) < 8) return 0;
        if (range->tables + (uint64_t)(int64_t)pair[0] <= pc) low = middle + 1; else high = middle;
    }
    if (low == 0 || cstacks_copy(pair, first + (low - 1) * 8, 8) < 8) return 0;
    return range->tables + (uint64_t)(int64_t)pair[1];
}

static bool read_common(struct bytes entry, struct common *common) {
    *common = (struct common){.code_alignment = 1};
    if (unsigned_number(&entry, 4) != 0) return false;
    uint8_t version = (uint8_t)unsigned_number(&entry, 1);
    if (version != 1 && version != 3) return false;
    const char *letters = (const char *)entry.at;
    const void *end = memchr(entry.at, 0, (size_t)(entry.end - entry.at));
    if (end == 0) return false;
    skip(&entry, (uint64_t)((const uint8_t *)end - entry.at) + 1);
    common->code_alignment = uleb(&entry);
    common->data_alignment = sleb(&entry);
    common->return_address = version == 1 ? unsigned_number(&entry, 1) : uleb(&entry);
    if (*letters == 'z') {
        common->has_augmentation = true;
        uint64_t size = uleb(&entry);
        struct bytes data = entry;
        skip(&entry, size);
        if (entry.has_failed) return false;
        data.end = entry.at;
        // Ends: with the text, whose end was found.
        for (letters++; *letters; letters++) {
            switch (*letters) {
            case 'R': common->pointer_encoding = (uint8_t)unsigned_number(&data, 1); break;
            case 'L': skip(&data, 1); break;
            case 'P': pointer(&data, unsigned_number(&data, 1) & 0x0F); break;
            case 'S': common->is_signal_frame = true; break;
            case 'B': case 'G': break;
            default: return false;
            }
        }
        if (data.has_failed) return false;
    } else if (*letters) {
        return false;
    }
    common->program = entry;
    return !entry.has_failed && common->return_address < CSTACKS_REGISTERS;
}

// The entry of the function with the address. `*behind` is how far into the function the address is.
static bool find_entry(
    struct cstacks_tables *tables, const struct code_range *range, uint64_t pc, struct common *common, struct bytes *program,
    uint64_t *behind) {
    struct bytes entry, common_entry;
    uint64_t address = range->tables ? entry_for(range, pc) : 0;
    if (address == 0 || !copy_entry(range, address, tables->entry, &entry)) return false;
    uint64_t place = entry.address, distance = unsigned_number(&entry, 4);
    if (distance == 0 || distance > place) return false;
    if (!copy_entry(range, place - distance, tables->common_entry, &common_entry) || !read_common(common_entry, common)) return false;
    uint64_t begin = pointer(&entry, common->pointer_encoding);
    uint64_t length = pointer(&entry, common->pointer_encoding & 0x0F);
    if (common->has_augmentation) skip(&entry, uleb(&entry));
    *program = entry;
    *behind = pc - begin;
    return !entry.has_failed && pc >= begin && pc - begin < length;
}

// MARK: Running its program

static void set(struct row *row, uint64_t number, struct rule rule) {
    // Registers that are not followed, as those of vectors.
    if (number < CSTACKS_REGISTERS) row->registers[number] = rule;
}

// An offset, which wraps around if the table is wrong.
static int64_t scaled(uint64_t factor, const struct common *common) { return (int64_t)(factor * (uint64_t)common->data_alignment); }

static struct bytes block(struct bytes *program) {
    uint64_t size = uleb(program);
    struct bytes block = *program;
    skip(program, size);
    block.end = program->at;
    return block;
}

// Runs the instructions up to the row that holds `behind` bytes into the function.
static bool run(struct cstacks_tables *tables, const struct common *common, struct bytes program, uint64_t behind) {
    struct row *row = &tables->row;
    uint64_t location = 0, number;
    while (program.at < program.end) {  // ends: each turn reads a byte at least
        uint8_t code = (uint8_t)unsigned_number(&program, 1), low = code & 0x3F;
        uint64_t advance = 0;
        switch (code & 0xC0) {
        case 0x40: advance = low; break;
        case 0x80: set(row, low, (struct rule){AT_OFFSET, scaled(uleb(&program), common), {0}}); continue;
        case 0xC0: if (low < CSTACKS_REGISTERS) row->registers[low] = tables->initial.registers[low]; continue;
        default:
            switch (code) {
            case 0x00: continue;  // nop
            case 0x02: advance = unsigned_number(&program, 1); break;
            case 0x03: advance = unsigned_number(&program, 2); break;
            case 0x04: advance = unsigned_number(&program, 4); break;
            case 0x05:  // offset_extended
                number = uleb(&program);
                set(row, number, (struct rule){AT_OFFSET, scaled(uleb(&program), common), {0}});
                continue;
            case 0x06:  // restore_extended
                number = uleb(&program);
                if (number < CSTACKS_REGISTERS) row->registers[number] = tables->initial.registers[number];
                continue;
            case 0x07: set(row, uleb(&program), (struct rule){.kind = UNDEFINED}); continue;
            case 0x08: set(row, uleb(&program), (struct rule){.kind = UNCHANGED}); continue;
            case 0x09:  // register
                number = uleb(&program);
                set(row, number, (struct rule){IN_REGISTER, (int64_t)uleb(&program), {0}});
                continue;
            case 0x0A:  // remember_state
                if (tables->aside_count == MOST_ROWS) return false;
                tables->aside[tables->aside_count++] = *row;
                continue;
            case 0x0B:  // restore_state
                if (tables->aside_count == 0) return false;
                *row = tables->aside[--tables->aside_count];
                continue;
            case 0x0C: case 0x12:  // def_cfa, def_cfa_sf
                row->address.kind = IN_REGISTER;
                row->address.operand = (int64_t)uleb(&program);
                row->address_offset = code == 0x0C ? (int64_t)uleb(&program) : scaled((uint64_t)sleb(&program), common);
                continue;
            case 0x0D: row->address.kind = IN_REGISTER; row->address.operand = (int64_t)uleb(&program); continue;
            case 0x0E: row->address_offset = (int64_t)uleb(&program); continue;
            case 0x13: row->address_offset = scaled((uint64_t)sleb(&program), common); continue;
            case 0x0F: row->address = (struct rule){AT_EXPRESSION, 0, block(&program)}; continue;
            case 0x10: number = uleb(&program); set(row, number, (struct rule){AT_EXPRESSION, 0, block(&program)}); continue;
            case 0x16: number = uleb(&program); set(row, number, (struct rule){IS_EXPRESSION, 0, block(&program)}); continue;
            case 0x11: case 0x14: case 0x15:  // offset_extended_sf, val_offset, val_offset_sf
                number = uleb(&program);
                set(row, number, (struct rule){
                    code == 0x11 ? AT_OFFSET : IS_OFFSET,
                    scaled(code == 0x14 ? uleb(&program) : (uint64_t)sleb(&program), common), {0}});
                continue;
            case 0x2D: continue;  // a signature of the return address is removed anyway
            case 0x2E: uleb(&program); continue;  // the size of pushed arguments
            default: return false;
            }
        }
        location += advance * common->code_alignment;
        if (location > behind) break;
    }
    return !program.has_failed;
}

// MARK: What the rules say

// Runs an expression. Those of compilers, linkers and C libraries use the instructions below, and none that jumps.
static bool compute(struct bytes code, uint64_t *stack, unsigned depth, const struct cstacks_piece *piece,
                    const struct cstacks_registers *registers, uint64_t *result) {
    while (code.at < code.end) {  // ends: each turn reads a byte at least, and no instruction jumps
        uint8_t operation = (uint8_t)unsigned_number(&code, 1);
        uint64_t value;
        if (operation >= 0x30 && operation <= 0x4F) {  // lit
            value = operation - 0x30u;
        } else if (operation >= 0x70 && operation <= 0x92) {  // breg, bregx
            if (operation > 0x8F && operation != 0x92) return false;
            uint64_t number = operation == 0x92 ? uleb(&code) : operation - 0x70u;
            if (number >= CSTACKS_REGISTERS || !(registers->known >> number & 1)) return false;
            value = registers->values[number] + (uint64_t)sleb(&code);
        } else {
            switch (operation) {
            case 0x08: value = unsigned_number(&code, 1); break;
            case 0x09: value = (uint64_t)signed_number(&code, 1); break;
            case 0x0A: value = unsigned_number(&code, 2); break;
            case 0x0B: value = (uint64_t)signed_number(&code, 2); break;
            case 0x0C: value = unsigned_number(&code, 4); break;
            case 0x0D: value = (uint64_t)signed_number(&code, 4); break;
            case 0x0E: case 0x0F: value = unsigned_number(&code, 8); break;
            case 0x10: value = uleb(&code); break;
            case 0x11: value = (uint64_t)sleb(&code); break;
            case 0x12: if (depth == 0) return false; value = stack[depth - 1]; break;  // dup
            case 0x06:  // deref
                if (depth == 0 || !cstacks_read_word(piece, stack[depth - 1], &value)) return false;
                depth--;
                break;
            case 0x23: if (depth == 0) return false; value = stack[--depth] + uleb(&code); break;
            default: {
                // All others take two values.
                if (depth < 2) return false;
                uint64_t second = stack[--depth], first = stack[--depth];
                switch (operation) {
                case 0x1A: value = first & second; break;
                case 0x1C: value = first - second; break;
                case 0x21: value = first | second; break;
                case 0x22: value = first + second; break;
                case 0x24: value = second < 64 ? first << second : 0; break;
                case 0x25: value = second < 64 ? first >> second : 0; break;
                case 0x29: value = first == second; break;
                case 0x2A: value = (int64_t)first >= (int64_t)second; break;
                case 0x2B: value = (int64_t)first > (int64_t)second; break;
                case 0x2C: value = (int64_t)first <= (int64_t)second; break;
                case 0x2D: value = (int64_t)first < (int64_t)second; break;
                case 0x2E: value = first != second; break;
                default: return false;
                }
            }
            }
        }
        if (depth == MOST_VALUES) return false;
        stack[depth++] = value;
    }
    if (code.has_failed || depth == 0) return false;
    *result = stack[depth - 1];
    return true;
}

static bool frame_address(
    const struct row *row, const struct cstacks_piece *piece, const struct cstacks_registers *registers, uint64_t *address) {
    uint64_t stack[MOST_VALUES];
    if (row->address.kind == AT_EXPRESSION) return compute(row->address.expression, stack, 0, piece, registers, address);
    if (row->address.kind != IN_REGISTER) return false;
    uint64_t number = (uint64_t)row->address.operand;
    if (number >= CSTACKS_REGISTERS || !(registers->known >> number & 1)) return false;
    *address = registers->values[number] + (uint64_t)row->address_offset;
    return true;
}

// The caller's value of a register; false if it is lost.
static bool value_of(
    unsigned number, struct rule rule, uint64_t address, bool keeps_all, const struct cstacks_piece *piece,
    const struct cstacks_registers *registers, uint64_t *value) {
    uint64_t stack[MOST_VALUES] = {address}, from = number;
    switch (rule.kind) {
    case AT_OFFSET: return cstacks_read_word(piece, address + (uint64_t)rule.operand, value);
    case IS_OFFSET: *value = address + (uint64_t)rule.operand; return true;
    case AT_EXPRESSION:
        return compute(rule.expression, stack, 1, piece, registers, &from) && cstacks_read_word(piece, from, value);
    case IS_EXPRESSION: return compute(rule.expression, stack, 1, piece, registers, value);
    case IN_REGISTER: from = (uint64_t)rule.operand; break;
    case UNCHANGED:
        if (!keeps_all && !(preserved_registers >> number & 1) && number != RETURN_ADDRESS) return false;
        break;
    case UNDEFINED: return false;
    }
    if (from >= CSTACKS_REGISTERS || !(registers->known >> from & 1)) return false;
    *value = registers->values[from];
    return true;
}

enum cstacks_step cstacks_step_by_table(
    struct cstacks_tables *tables, const struct cstacks_piece *piece, struct cstacks_registers *registers, bool *is_exact) {
    // A return address is behind the call, perhaps in the next function.
    uint64_t pc = registers->pc - (*is_exact ? 0 : 1), behind, address;
    const struct code_range *range = cstacks_range_of(piece->ranges, pc);
    struct common common;
    struct bytes program;
    if (range == 0 || !find_entry(tables, range, pc, &common, &program, &behind)) return CSTACKS_STEP_UNKNOWN;
    memset(&tables->row, 0, sizeof(tables->row));
    memset(&tables->initial, 0, sizeof(tables->initial));
    tables->aside_count = 0;
    // The common entry's rules are those of the first instruction, which others restore.
    if (!run(tables, &common, common.program, UINT64_MAX)) return CSTACKS_STEP_UNKNOWN;
    tables->initial = tables->row;
    tables->aside_count = 0;
    if (!run(tables, &common, program, behind)) return CSTACKS_STEP_UNKNOWN;
    struct rule back = tables->row.registers[common.return_address];
    if (back.kind == UNDEFINED) return CSTACKS_STEP_OUTERMOST;
    if (!frame_address(&tables->row, piece, registers, &address)) return CSTACKS_STEP_UNKNOWN;
    struct cstacks_registers caller = {.known = 0};
    for (unsigned number = 0; number < CSTACKS_REGISTERS; number++) {
        uint64_t value;
        struct rule rule = tables->row.registers[number];
        if (number == CSTACKS_SP && rule.kind == UNCHANGED) rule = (struct rule){.kind = IS_OFFSET};
        if (!value_of(number, rule, address, common.is_signal_frame, piece, registers, &value)) continue;
        caller.values[number] = value;
        caller.known |= (uint64_t)1 << number;
    }
    if (!(caller.known >> common.return_address & 1) || !(caller.known >> CSTACKS_SP & 1)) return CSTACKS_STEP_UNKNOWN;
    caller.pc = plain_code_address(caller.values[common.return_address]);
    // The register has the address of this function's caller, not of the caller's caller.
    caller.known &= ~((uint64_t)1 << RETURN_ADDRESS);
    *registers = caller;
    *is_exact = common.is_signal_frame;
    return CSTACKS_STEP_CALLER;
}

#endif
