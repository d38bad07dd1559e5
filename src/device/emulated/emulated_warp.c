/*
 * What the lanes of a warp do together, and copies that take their time.
 *
 * Fragments lie in registers as PTX has them for ldmatrix and mma.m16n8k16: lane l, with
 * group g = l / 4 and place t = l % 4 in it, holds two elements of 16 bits a register, the
 * lower half first.
 *
 *   A (16 x 16): register i = row g + 8 (i % 2), columns 2t, 2t + 1 of half i / 2
 *   B (16 x 8):  register i = rows 2t, 2t + 1 of half i, column g
 *   C (16 x 8):  c[i]       = row g + 8 (i / 2), column 2t + i % 2
 */
#include "device/emulated/emulated_block.h"
#include "device/emulated/emulated_watch.h"

#include <stdlib.h>
#include <string.h>

/* -- shuffles ------------------------------------------------------------------------ */

struct shuffled {
    uint64_t x, result;
    enum emulated_shuffle how;
    int lane;
};

static void shuffle(void *lanes[BLOCK_WARP])
{
    for (int i = 0; i < BLOCK_WARP; i++) {
        struct shuffled *s = lanes[i];
        int from = s->how == SHUFFLE_FROM  ? s->lane % BLOCK_WARP
                   : s->how == SHUFFLE_XOR ? i ^ s->lane
                                           : i + s->lane;
        CHECK(from >= 0 && s->lane >= 0, "%s: a shuffle from lane %d", block_words(),
              from);
        s->result = ((struct shuffled *)lanes[from < BLOCK_WARP ? from : i])->x;
    }
}

uint64_t emulated_shuffle(enum emulated_shuffle how, uint32_t mask, uint64_t x, int lane,
                          int line)
{
    static const struct warp_meeting meetings[] = {
        [SHUFFLE_FROM] = {"__shfl_sync", shuffle, false},
        [SHUFFLE_XOR] = {"__shfl_xor_sync", shuffle, false},
        [SHUFFLE_DOWN] = {"__shfl_down_sync", shuffle, false},
    };
    struct shuffled s = {.x = x, .how = how, .lane = lane};
    CHECK(mask == UINT32_MAX, "%s: a shuffle of some lanes, 0x%x", block_words(), mask);
    block_meet_warp(&meetings[how], &s, line);
    return s.result;
}

void emulated_sync_warp(int line)
{
    static const struct warp_meeting meeting = {"__syncwarp", NULL, true};
    block_meet_warp(&meeting, NULL, line);
}

/* -- matrices ------------------------------------------------------------------------ */

struct loaded {
    const uint16_t *row;
    uint32_t *r;
};

static uint32_t pair(uint16_t low, uint16_t high)
{
    return low | (uint32_t)high << 16;
}

static void load_matrices(void *lanes[BLOCK_WARP])
{
    for (int i = 0; i < BLOCK_WARP; i++)
        for (int m = 0; m < 4; m++) {
            struct loaded *to = lanes[i], *from = lanes[8 * m + i / 4];
            to->r[m] = pair(from->row[i % 4 * 2], from->row[i % 4 * 2 + 1]);
        }
}

static void load_matrices_transposed(void *lanes[BLOCK_WARP])
{
    for (int i = 0; i < BLOCK_WARP; i++)
        for (int m = 0; m < 4; m++) {
            struct loaded *to = lanes[i], *rows[2];
            for (int k = 0; k < 2; k++)
                rows[k] = lanes[8 * m + i % 4 * 2 + k];
            to->r[m] = pair(rows[0]->row[i / 4], rows[1]->row[i / 4]);
        }
}

static void check_shared(const void *memory, size_t bytes, const char *what)
{
    const char *first = memory;
    const struct emulated_here *h = &emulated_here;
    CHECK((uintptr_t)memory % 16 == 0, "%s: %s at an address that 16 does not divide",
          block_words(), what);
    CHECK(first >= h->shared && first + bytes <= h->shared + h->shared_bytes,
          "%s: %s outside of the block's shared memory", block_words(), what);
}

void emulated_load_matrix(uint32_t r[4], const void *row, bool is_transposed, int line)
{
    static const struct warp_meeting meetings[] = {
        {"load_matrix_4", load_matrices, false},
        {"load_matrix_4_transposed", load_matrices_transposed, false},
    };
    struct loaded l = {row, r};
    check_shared(row, 16, "load_matrix");
    if (emulated_watch)
        emulated_watch->access(row, 16, ACCESS_READ);
    block_meet_warp(&meetings[is_transposed], &l, line);
}

struct multiplied {
    float *c;
    const uint32_t *a, *b;
};

/* As the units do it, nearly: products and their sum are wide, and rounded once to the
 * float that the next sum begins with. */
static void multiply(void *lanes[BLOCK_WARP], float (*widen)(uint16_t))
{
    double a[16][16], b[16][8], c[16][8];
    for (int i = 0; i < BLOCK_WARP; i++) {
        struct multiplied *x = lanes[i];
        int g = i / 4, t = i % 4;
        for (int half = 0; half < 2; half++) {
            int shift = 16 * half;
            for (int j = 0; j < 4; j++)
                a[g + 8 * (j % 2)][2 * t + 8 * (j / 2) + half] =
                    (double)widen((uint16_t)(x->a[j] >> shift));
            for (int j = 0; j < 2; j++)
                b[2 * t + 8 * j + half][g] = (double)widen((uint16_t)(x->b[j] >> shift));
        }
        for (int j = 0; j < 4; j++)
            c[g + 8 * (j / 2)][2 * t + j % 2] = (double)x->c[j];
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                c[i][j] += a[i][k] * b[k][j];
    for (int i = 0; i < BLOCK_WARP; i++) {
        struct multiplied *x = lanes[i];
        for (int j = 0; j < 4; j++)
            x->c[j] = (float)c[i / 4 + 8 * (j / 2)][2 * (i % 4) + j % 2];
    }
}

static void multiply_f16(void *lanes[BLOCK_WARP])
{
    multiply(lanes, f16_to_f32);
}

static void multiply_bf16(void *lanes[BLOCK_WARP])
{
    multiply(lanes, bf16_to_f32);
}

void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], enum dtype dtype,
                  int line)
{
    static const struct warp_meeting of_f16 = {"mma_16x8x16_f16", multiply_f16, false};
    static const struct warp_meeting of_bf16 = {"mma_16x8x16_bf16", multiply_bf16, false};
    struct multiplied x = {c, a, b};
    block_meet_warp(dtype == DTYPE_F16 ? &of_f16 : &of_bf16, &x, line);
}

/* -- asynchronous copies ------------------------------------------------------------- */

/* What is read comes at any time until it is waited for: NaNs now, the bytes then. */
void copy_async_16(void *shared, const void *global)
{
    struct async_copies *c = block_copies();
    check_shared(shared, 16, "copy_async_16 to");
    CHECK((uintptr_t)global % 16 == 0,
          "%s: copy_async_16 from an address that 16 does not divide", block_words());
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 32;
        c->at = realloc(c->at, (size_t)c->room * sizeof *c->at);
        CHECK(c->at, "no memory for copies of an emulated thread");
    }
    c->at[c->n++] = (struct async_copy){shared, global, c->group};
    if (emulated_watch)
        emulated_watch->access(shared, 16, ACCESS_COPY_BEGINS);
    memset(shared, 0xFF, 16);
}

void copy_async_commit(void)
{
    block_copies()->group++;
}

void copy_async_wait(int n)
{
    struct async_copies *c = block_copies();
    int kept = 0;
    for (int i = 0; i < c->n; i++) {
        struct async_copy x = c->at[i];
        if (x.group >= c->group - n) {
            c->at[kept++] = x;
            continue;
        }
        if (emulated_watch) {
            emulated_watch->access(x.from, 16, ACCESS_READ);
            emulated_watch->access(x.to, 16, ACCESS_COPY_ENDS);
        }
        memcpy(x.to, x.from, 16);
    }
    c->n = kept;
}
