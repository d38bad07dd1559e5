/*
 * cpu_tiles - the tile unit of a processor (AMX): eight tiles of 16 rows of 64 bytes, and
 * the product of two of them. Sources that compute with tiles are written with what is
 * below. Compiled for the unit it is its instructions; otherwise a twin in C that gives
 * the same bits, so that those sources are tested on every machine.
 *
 * Tiles are live only inside a kernel: a thread calls amx_init() before it uses them and
 * amx_release() before it leaves the kernel, so that neither threads that end nor the
 * frames of signal handlers carry them along.
 *
 * Numbers of tiles are constants, 0 to 7; strides are bytes from row to row.
 */
#ifndef DEVICE_CPU_CPU_TILES_H
#define DEVICE_CPU_CPU_TILES_H

#include "base/base.h"

#include <string.h>

#define AMX_TILES 8
#define AMX_ROWS 16
#define AMX_ROW_BYTES 64
#define AMX_DEPTH 32 // values of k that one product takes

#ifdef __AMX_BF16__

struct amx_tiles { // as LDTILECFG reads it; what is reserved has to be zero
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_tiles) == 64, "what LDTILECFG reads");

/* Every tile is zero then, and has so many rows (1 to 16) of 64 bytes. */
static inline void amx_init(struct amx_tiles *t, const uint8_t rows[AMX_TILES])
{
    *t = (struct amx_tiles){.palette = 1};
    for (int i = 0; i < AMX_TILES; i++) {
        t->row_bytes[i] = AMX_ROW_BYTES;
        t->rows[i] = rows[i];
    }
    // not the compiler's intrinsic: gcc 12 takes it to read 8 bytes, and drops the others
    __asm__ volatile("ldtilecfg %0" : : "m"(*t));
}

static inline void amx_release(struct amx_tiles *t)
{
    (void)t;
    __asm__ volatile("tilerelease");
}

// macros, since a tile's number is part of the instruction; the clobbered memory makes
// the compiler store before a load what it holds in registers
#define amx_zero(t, tile)                                                                \
    do {                                                                                 \
        (void)(t);                                                                       \
        __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));                             \
    } while (0)
#define amx_load(t, tile, from, stride)                                                  \
    do {                                                                                 \
        (void)(t);                                                                       \
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"                                 \
                         :                                                               \
                         : "r"((const void *)(from)), "r"((int64_t)(stride)), "i"(tile)  \
                         : "memory");                                                    \
    } while (0)
#define amx_store(t, tile, to, stride)                                                   \
    do {                                                                                 \
        (void)(t);                                                                       \
        __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"                                \
                         :                                                               \
                         : "r"((void *)(to)), "r"((int64_t)(stride)), "i"(tile)          \
                         : "memory");                                                    \
    } while (0)
#define amx_dot_bf16(t, c, a, b)                                                         \
    do {                                                                                 \
        (void)(t);                                                                       \
        __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"                        \
                         :                                                               \
                         : "i"(c), "i"(a), "i"(b));                                      \
    } while (0)

#else

#include "device/cpu/cpu_flush.h"

struct amx_tiles {
    uint8_t rows[AMX_TILES];
    union amx_tile {
        float f32[AMX_ROWS][AMX_ROW_BYTES / 4];
        uint16_t bf16[AMX_ROWS][AMX_ROW_BYTES / 2];
    } tile[AMX_TILES];
};

static inline void amx_init(struct amx_tiles *t, const uint8_t rows[AMX_TILES])
{
    memset(t, 0, sizeof *t);
    memcpy(t->rows, rows, sizeof t->rows);
}

static inline void amx_release(struct amx_tiles *t)
{
    memset(t->rows, 0, sizeof t->rows);
}

static inline void amx_zero(struct amx_tiles *t, int tile)
{
    memset(&t->tile[tile], 0, sizeof t->tile[tile]);
}

/* Tile := rows in memory. */
static inline void amx_load(struct amx_tiles *t, int tile, const void *from,
                            int64_t stride)
{
    for (int r = 0; r < t->rows[tile]; r++)
        memcpy(t->tile[tile].f32[r], (const char *)from + r * stride, AMX_ROW_BYTES);
}

static inline void amx_store(const struct amx_tiles *t, int tile, void *to,
                             int64_t stride)
{
    for (int r = 0; r < t->rows[tile]; r++)
        memcpy((char *)to + r * stride, t->tile[tile].f32[r], AMX_ROW_BYTES);
}

/*
 * C (rows, 16) += A (rows, 32) B, where row k / 2 of B (16, 32) has the elements k and
 * k + 1 of each of its 16 columns side by side. For each element
 *   e = chain of fused multiply-adds over k = 0, 2, 4, ... from +0
 *   o = chain of fused multiply-adds over k = 1, 3, 5, ... from +0
 *   c = c + (e + o)
 * in float; subnormal operands and results count as zeros of their sign.
 */
static inline void amx_dot_bf16(struct amx_tiles *t, int c, int a, int b)
{
    CHECK(t->rows[c] > 0 && t->rows[a] == t->rows[c] && t->rows[b] == AMX_DEPTH / 2,
          "tiles of %d, %d and %d rows cannot be multiplied", t->rows[c], t->rows[a],
          t->rows[b]);
    uint32_t before = flush_begin();
    for (int r = 0; r < t->rows[c]; r++)
        flush_dot_bf16(t->tile[c].f32[r], t->tile[a].bf16[r], t->tile[b].bf16[0]);
    flush_end(before);
}

#endif
#endif
