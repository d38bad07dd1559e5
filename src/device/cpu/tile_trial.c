/*
 * One product of tiles, tried. A processor, or what pretends to be one, may announce the
 * tile unit and fault at its first instruction, or compute something else; so a product
 * runs once with handlers for what a fault would raise, and its bits are compared. The
 * handlers that were there before are there again afterwards.
 *
 * This file alone is compiled with the instructions of tiles and nothing else.
 */
#include "device/cpu/cpu_flush.h"
#include "device/cpu/cpu_tiles.h"
#include "device/kernel_sets.h"

#include <setjmp.h>
#include <signal.h>

static const int fault_signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
static sigjmp_buf before_fault; // of the one thread that tries

struct trial {
    uint16_t a[AMX_ROWS][AMX_DEPTH], b[AMX_ROWS][AMX_DEPTH];
    float start[AMX_ROWS][16], c[AMX_ROWS][16];
};

static void on_fault(int number)
{
    (void)number;
    siglongjmp(before_fault, 1);
}

/* Whether f() came to its end. */
static bool survives(void (*f)(struct trial *), struct trial *t)
{
    struct sigaction act = {.sa_handler = on_fault}, old[ARRAY_LEN(fault_signals)];
    volatile bool is_done = false;
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(fault_signals); i++)
        sigaction(fault_signals[i], &act, &old[i]);
    if (sigsetjmp(before_fault, 1) == 0) {
        f(t);
        is_done = true;
    }
    for (size_t i = 0; i < ARRAY_LEN(fault_signals); i++)
        sigaction(fault_signals[i], &old[i], NULL);
    return is_done;
}

static void multiply(struct trial *t)
{
    struct amx_tiles tiles;
    amx_init(&tiles, (uint8_t[AMX_TILES]){16, 16, 16, 16, 16, 16, 16, 16});
    amx_load(&tiles, 0, t->start, AMX_ROW_BYTES);
    amx_load(&tiles, 1, t->a, AMX_ROW_BYTES);
    amx_load(&tiles, 2, t->b, AMX_ROW_BYTES);
    amx_dot_bf16(&tiles, 0, 1, 2);
    amx_store(&tiles, 0, t->c, AMX_ROW_BYTES);
    amx_release(&tiles);
}

static void leave_tiles(struct trial *t)
{
    struct amx_tiles tiles;
    (void)t;
    amx_release(&tiles);
}

/* Numbers of many sizes, so that every other order of sums rounds otherwise somewhere. */
static void fill(struct trial *t)
{
    uint32_t state = 1;
    for (int r = 0; r < AMX_ROWS; r++)
        for (int c = 0; c < AMX_DEPTH; c++) {
            state = state * 1664525u + 1013904223u;
            t->a[r][c] = (uint16_t)((state >> 8 & 0x81FF) | 0x3E00);
            t->b[r][c] = (uint16_t)((state >> 16 & 0x80FF) | 0x3F00);
            t->start[r][c / 2] = bf16_to_f32(t->a[r][c]);
        }
}

bool tile_trial_is_right(void)
{
    struct trial t;
    fill(&t);
    if (!survives(multiply, &t)) {
        survives(leave_tiles, &t);
        return false;
    }
    uint32_t before = flush_begin(), differing = 0;
    for (int r = 0; r < AMX_ROWS; r++)
        flush_dot_bf16(t.start[r], t.a[r], t.b[0]);
    flush_end(before);
    for (int r = 0; r < AMX_ROWS; r++)
        for (int c = 0; c < 16; c++)
            differing |= f32_bits(t.start[r][c]) ^ f32_bits(t.c[r][c]);
    return differing == 0;
}
