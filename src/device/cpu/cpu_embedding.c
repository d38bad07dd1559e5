/*
 * Token and position embeddings. The gradient of a row is summed in the order of the
 * tokens: each part of a row belongs to one thread, whichever that is.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <omp.h>

#define COLUMNS 512     // of a row that a thread takes at a time
#define OWN_COLUMNS 128 // the fewest that a thread has of every row of a gradient
#define FEW 8192        // elements that one thread computes sooner than it wakes another

/* -- forward ------------------------------------------------------------------------- */

/* The rows of a token that are there. */
struct rows {
    int64_t word, position; // their first elements, or -1
};

INLINE void embed_step(float *x, const struct embedding *e, struct rows rows, int64_t c,
                       int64_t n, enum dtype dtype)
{
    vec sum = {0};
    if (rows.word >= 0)
        sum = vec_load(e->wte->data, rows.word + c, n, dtype);
    if (rows.word >= 0 && rows.position >= 0)
        sum += vec_load(e->wpe->data, rows.position + c, n, dtype);
    else if (rows.position >= 0)
        sum = vec_load(e->wpe->data, rows.position + c, n, dtype);
    vec_store(x, c, sum, n, DTYPE_F32);
}

/* Columns [c, end) of a row of x. */
INLINE void embed_run(float *x, const struct embedding *e, struct rows rows, int64_t c,
                      int64_t end, enum dtype dtype)
{
    for (; c + VEC <= end; c += VEC)
        embed_step(x, e, rows, c, VEC, dtype);
    if (c < end)
        embed_step(x, e, rows, c, end - c, dtype);
}

void K(embedding_fwd)(struct stream *s, const struct embedding *e)
{
    int64_t N = e->B * e->S, H = e->H;
#pragma omp parallel for collapse(2) schedule(static) if (N * H > FEW)
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < H; c += COLUMNS) {
            struct rows rows = {.word = e->tokens[n] >= 0 ? e->tokens[n] * H : -1,
                                .position = e->wpe ? e->positions[n] * H : -1};
            TYPED(e->wte->dtype, embed_run, e->x + n * H, e, rows, c,
                  i64_min(H, c + COLUMNS));
        }
}

/* -- backward ------------------------------------------------------------------------ */

INLINE void add_step(float *sum, const void *x, int64_t at, int64_t n, enum dtype dtype)
{
    vec total = vec_load(sum, 0, n, DTYPE_F32) + vec_load(x, at, n, dtype);
    vec_store(sum, 0, total, n, DTYPE_F32);
}

/* Columns [c, end) of a row of a gradient += those of the row of dx from `at`. */
INLINE void add_run(float *row, const void *dx, int64_t at, int64_t c, int64_t end,
                    enum dtype dtype)
{
    for (; c + VEC <= end; c += VEC)
        add_step(row + c, dx, at + c, VEC, dtype);
    if (c < end)
        add_step(row + c, dx, at + c, end - c, dtype);
}

static void add_typed_run(float *row, const void *dx, int64_t at, int64_t c, int64_t end,
                          enum dtype dtype)
{
    TYPED(dtype, add_run, row, dx, at, c, end);
}

/* Threads share columns, so that frequent tokens burden all alike; where there are more
 * threads than parts of a row that are worth one, rows as well. */
void K(embedding_bwd)(struct stream *s, const struct embedding_bwd *e)
{
    const int32_t *tokens = e->tokens, *positions = e->positions;
    int64_t H = e->H, N = e->B * e->S;
    enum dtype dtype = s->dev->dtype;
#pragma omp parallel if (N * H > FEW)
    {
        int64_t n_threads = omp_get_num_threads(), me = omp_get_thread_num();
        int64_t n_parts = i64_max(1, i64_min(n_threads, H / OWN_COLUMNS));
        int64_t n_kinds = n_threads / n_parts, kind = me / n_parts;
        int64_t part = i64_round_up((H + n_parts - 1) / n_parts, LANES);
        int64_t c = me % n_parts * part, end = i64_min(H, c + part);
        for (int64_t n = 0; kind < n_kinds && c < end && n < N; n++) {
            if (tokens[n] >= 0 && tokens[n] % n_kinds == kind)
                add_typed_run(e->dwte + tokens[n] * H, e->dx, n * H, c, end, dtype);
            if (positions[n] % n_kinds == kind)
                add_typed_run(e->dwpe + positions[n] * H, e->dx, n * H, c, end, dtype);
        }
    }
}
