/*
 * The tile unit of a processor that has none: its instructions trap (SIGILL), and this
 * handler decodes and computes them, so that the machine code itself of the amx kernels
 * runs, and is compared, on every x86-64 machine. On one that has the unit nothing traps.
 *
 * Linked into a test, it is there before main(); a thread's tiles are its own. A trap
 * takes about a microsecond: for small products only.
 *
 * What is computed is what Intel's manual says of LDTILECFG, TILEZERO, TILELOADD,
 * TILESTORED, TILERELEASE and TDPBF16PS, with the order of sums that was measured on the
 * unit (docs/architecture.md, Numerics). Anything else that is illegal stays so.
 */
#ifdef __x86_64__

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <xmmintrin.h>

#define N_TILES 8
#define TILE_ROW_BYTES 64
#define MXCSR_FLUSH 0x8040u // subnormal results and operands count as zero

struct tile {
    int rows, row_bytes;
    uint8_t data[16][TILE_ROW_BYTES];
};

static _Thread_local struct {
    bool is_configured;
    struct tile tiles[N_TILES];
} unit;

/* One instruction with a three-byte VEX prefix and an opcode of the map 0F 38. */
struct instruction {
    int prefix, opcode; // prefix: 0 none, 1 66, 2 F3, 3 F2
    int mod, reg, rm, vvvv;
    int64_t stride;   // of a memory operand with an index
    uint8_t *address; // of a memory operand
    int64_t n_bytes;
};

static int64_t register_of(const ucontext_t *context, int number)
{
    static const int names[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[names[number]];
}

/* The memory operand that begins at its ModRM byte; returns the byte behind it. */
static const uint8_t *decode_address(struct instruction *in, const uint8_t *at,
                                     const ucontext_t *context, int vex_x, int vex_b)
{
    int64_t address = 0;
    int8_t near_by;
    int32_t far;
    bool has_base = true;
    int base = in->rm | vex_b << 3;
    at++;
    if (in->rm == 4) {
        int index = (*at >> 3 & 7) | vex_x << 3;
        base = (*at & 7) | vex_b << 3;
        in->stride = index == 4 ? 0 : register_of(context, index) << (*at >> 6);
        has_base = (*at & 7) != 5 || in->mod != 0;
        at++;
    } else if (in->rm == 5 && in->mod == 0) { // relative to the next instruction
        memcpy(&far, at, sizeof far);
        in->address = (uint8_t *)(uintptr_t)(at + 4) + far;
        return at + 4;
    }
    if (has_base)
        address = register_of(context, base);
    if (in->mod == 1) {
        memcpy(&near_by, at, sizeof near_by);
        address += near_by;
        at++;
    } else if (in->mod == 2 || !has_base) {
        memcpy(&far, at, sizeof far);
        address += far;
        at += 4;
    }
    in->address = (uint8_t *)(uintptr_t)address;
    return at;
}

static bool decode(struct instruction *in, const ucontext_t *context)
{
    const uint8_t *first =
        (const uint8_t *)(uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    if (first[0] != 0xC4 || (first[1] & 0x1F) != 2 || (first[2] & 0x84) != 0)
        return false; // not VEX.128.0F38.W0
    *in = (struct instruction){.prefix = first[2] & 3,
                               .vvvv = ~(first[2] >> 3) & 0xF,
                               .opcode = first[3],
                               .mod = first[4] >> 6,
                               .reg = first[4] >> 3 & 7,
                               .rm = first[4] & 7};
    const uint8_t *end = first + 5;
    if (in->mod != 3)
        end = decode_address(in, first + 4, context, !(first[1] & 0x40),
                             !(first[1] & 0x20));
    in->n_bytes = end - first;
    return true;
}

static void configure(const uint8_t *config)
{
    unit.is_configured = true;
    for (int t = 0; t < N_TILES; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, config + 16 + 2 * t, sizeof row_bytes);
        unit.tiles[t] = (struct tile){.rows = config[48 + t], .row_bytes = row_bytes};
    }
}

/* What the unit refuses, with #GP or #UD. */
static bool is_good_configuration(const uint8_t *config)
{
    for (int i = 2; i < 16; i++)
        if (config[i] != 0)
            return false;
    for (int i = 32; i < 48; i++) // tiles 8 to 15
        if (config[i] != 0)
            return false;
    for (int i = 56; i < 64; i++)
        if (config[i] != 0)
            return false;
    for (int t = 0; t < N_TILES; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, config + 16 + 2 * t, sizeof row_bytes);
        if (config[48 + t] > 16 || row_bytes > TILE_ROW_BYTES ||
            (config[48 + t] == 0) != (row_bytes == 0))
            return false;
    }
    return config[0] == 1 && config[1] == 0;
}

static float bf16_at(const struct tile *t, int row, int element)
{
    uint32_t bits = 0;
    float x;
    memcpy((uint8_t *)&bits + 2, &t->data[row][2 * element], 2);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool dot(struct tile *c, const struct tile *a, const struct tile *b)
{
    int n_pairs = a->row_bytes / 4;
    if (a->rows != c->rows || b->rows != n_pairs || b->row_bytes != c->row_bytes)
        return false; // the unit refuses such shapes
    unsigned mxcsr = _mm_getcsr();
    _mm_setcsr((mxcsr & ~0x6000u) | MXCSR_FLUSH);
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            volatile float even = 0, odd = 0, sum; // computed here, not before or after
            for (int k = 0; k < n_pairs; k++) {
                even = fmaf(bf16_at(a, m, 2 * k), bf16_at(b, k, 2 * n), even);
                odd = fmaf(bf16_at(a, m, 2 * k + 1), bf16_at(b, k, 2 * n + 1), odd);
            }
            sum = even + odd;
            float old;
            memcpy(&old, &c->data[m][4 * n], sizeof old);
            sum = old + sum;
            old = sum;
            memcpy(&c->data[m][4 * n], &old, sizeof old);
        }
    _mm_setcsr(mxcsr);
    return true;
}

static bool execute(const struct instruction *in)
{
    enum { NONE = 0, F3 = 2, F2 = 3 };
    struct tile *t = &unit.tiles[in->reg];
    bool is_memory = in->mod != 3;
    if (in->opcode == 0x49 && in->prefix == NONE && is_memory && in->reg == 0) {
        if (!is_good_configuration(in->address))
            return false;
        configure(in->address);
        return true;
    }
    if (in->opcode == 0x49 && in->prefix == NONE && !is_memory && in->reg == 0) {
        unit.is_configured = false; // TILERELEASE
        return true;
    }
    if (!unit.is_configured)
        return false;
    if (in->opcode == 0x49 && in->prefix == F2 && !is_memory) {
        memset(t->data, 0, sizeof t->data);
        return true;
    }
    if (in->opcode == 0x4B && (in->prefix == F2 || in->prefix == F3) && is_memory &&
        in->rm == 4) {
        if (in->prefix == F2)
            memset(t->data, 0, sizeof t->data);
        for (int r = 0; r < t->rows; r++) {
            uint8_t *row = in->address + r * in->stride;
            if (in->prefix == F2)
                memcpy(t->data[r], row, (size_t)t->row_bytes);
            else
                memcpy(row, t->data[r], (size_t)t->row_bytes);
        }
        return true;
    }
    if (in->opcode == 0x5C && in->prefix == F3 && !is_memory && in->vvvv < N_TILES)
        return dot(t, &unit.tiles[in->rm], &unit.tiles[in->vvvv]);
    return false;
}

static void on_illegal(int number, siginfo_t *info, void *context_)
{
    ucontext_t *context = context_;
    struct instruction in;
    (void)info;
    if (decode(&in, context) && execute(&in)) {
        context->uc_mcontext.gregs[REG_RIP] += in.n_bytes;
        return;
    }
    signal(number, SIG_DFL); // met again, it ends the process
}

void amx_trap(void);

/* Again where others have put a handler of theirs, as cmocka does for every test. */
__attribute__((constructor)) void amx_trap(void)
{
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGILL, &action, NULL);
}

#else
typedef int amx_trap_unused; // a translation unit is not empty
#endif
