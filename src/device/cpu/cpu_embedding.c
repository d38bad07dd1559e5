/*
 * Token and position embeddings. The gradient of a row is summed in the order of the
 * tokens: each row belongs to one thread, whichever that is.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/cpu_convert.h"

#include <omp.h>
#include <string.h>

/* x := the sum of the rows that are there. */
static void add_rows(float *restrict x, const float *word, const float *position,
                     int64_t H)
{
    if (word && position)
        for (int64_t c = 0; c < H; c++)
            x[c] = word[c] + position[c];
    else if (word || position)
        memcpy(x, word ? word : position, (size_t)H * sizeof *x);
    else
        memset(x, 0, (size_t)H * sizeof *x);
}

/* The same of rows of 16 bits: what is not there counts as zeros. */
static void add_typed_rows(float *restrict x, const uint16_t *word,
                           const uint16_t *position, enum dtype dtype, int64_t H)
{
    for (int64_t c = 0; c < H; c += CONVERT_RUN) {
        float add[CONVERT_RUN] = {0}, *to = x + c;
        int64_t run = i64_min(CONVERT_RUN, H - c);
        memset(to, 0, (size_t)run * sizeof *to);
        if (word)
            widen(to, word + c, dtype, run);
        if (position)
            widen(add, position + c, dtype, run);
        for (int64_t i = 0; i < run; i++)
            to[i] += add[i];
    }
}

/* x := the sum of the rows of token n. */
static void embed_row(float *x, const struct embedding *e, int64_t n)
{
    int64_t word = e->tokens[n] * e->H, position = e->positions[n] * e->H;
    bool has_word = e->tokens[n] >= 0, has_position = e->wpe != NULL;
    if (e->wte->dtype == DTYPE_F32)
        add_rows(x, has_word ? (const float *)e->wte->data + word : NULL,
                 has_position ? (const float *)e->wpe->data + position : NULL, e->H);
    else
        add_typed_rows(x, has_word ? (const uint16_t *)e->wte->data + word : NULL,
                       has_position ? (const uint16_t *)e->wpe->data + position : NULL,
                       e->wte->dtype, e->H);
}

void K(embedding_fwd)(struct stream *s, float *x, const struct embedding *e)
{
    const struct dropout *drop = &e->drop;
    int64_t S = e->S, H = e->H;
    int64_t n_groups = i64_round_up(H, DROPOUT_GROUP) / DROPOUT_GROUP;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < e->B * S; n++) {
        float *x_n = x + n * H;
        embed_row(x_n, e, n);
        for (int64_t i = 0; drop->threshold > 0 && i < n_groups; i++) {
            float factor[DROPOUT_GROUP];
            int64_t at = i * DROPOUT_GROUP;
            K(dropout_group)
            (factor, drop, drop->first_sample + (uint32_t)(n / S),
             (uint64_t)((drop->first_row + n % S) * n_groups + i));
            for (int64_t c = 0; c < i64_min(DROPOUT_GROUP, H - at); c++)
                x_n[at + c] *= factor[c];
        }
    }
}

static void add_row(float *restrict row, const float *restrict d, int64_t H)
{
    for (int64_t c = 0; c < H; c++)
        row[c] += d[c];
}

void K(embedding_bwd)(struct stream *s, const struct embedding_bwd *e)
{
    const int32_t *tokens = e->tokens, *positions = e->positions;
    int64_t H = e->H;
    K(dropout_bwd)(s, e->dx, e->dx, e->B, e->S, H, &e->drop);
#pragma omp parallel
    {
        int me = omp_get_thread_num(), n_threads = omp_get_num_threads();
        for (int64_t n = 0; n < e->B * e->S; n++) {
            if (tokens[n] >= 0 && tokens[n] % n_threads == me)
                add_row(e->dwte + tokens[n] * H, e->dx + n * H, H);
            if (positions[n] % n_threads == me)
                add_row(e->dwpe + positions[n] * H, e->dx + n * H, H);
        }
    }
}
