/*
 * Embeddings. Tokens are the host's, so that it can list for the gradient which tokens
 * belong to a row, in their order: sorted by row, a few thousand at a time. That several
 * parts add to a row one after the other changes no sum.
 */
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_table.h"

TYPED_KERNEL(embed);
TYPED_KERNEL(embed_bwd);

#define THREADS_MOST 128
#define RUN 4

/* -- forward ------------------------------------------------------------------------- */

#define TOKENS_MOST ((int64_t)(GPU_ARRAY_BYTES / sizeof(int32_t))) // of one launch

static void embed_part(struct stream *s, const struct embedding *e, int64_t first,
                       int64_t N)
{
    size_t bytes = (size_t)N * sizeof(int32_t);
    struct gpu_embed a = {.x = e->x + first * e->H,
                          .wte = e->wte->data,
                          .tokens = gpu_upload(s, e->tokens + first, bytes),
                          .N = N,
                          .H = e->H};
    struct gpu_grid grid = gpu_grid_rows(
        N, gpu_parts(e->H, (int64_t)(16 / dtype_bytes(e->wte->dtype))), THREADS_MOST);
    if (e->wpe) {
        a.wpe = e->wpe->data;
        a.positions = gpu_upload(s, e->positions + first, bytes);
    }
    gpu_table_launch(s, embed[e->wte->dtype], "embedding_fwd", &grid, &a, sizeof a);
}

void gpu_table_embedding_fwd(struct stream *s, const struct embedding *e)
{
    int64_t N = e->B * e->S;
    CHECK(!e->wpe || e->wpe->dtype == e->wte->dtype, "embeddings of %s and %s",
          dtype_name(e->wpe->dtype), dtype_name(e->wte->dtype));
    for (int64_t n = 0; n < N; n += TOKENS_MOST)
        embed_part(s, e, n, i64_min(TOKENS_MOST, N - n));
}

/* -- backward ------------------------------------------------------------------------ */

#define LISTED_MOST 8192 // tokens that are sorted together

struct row_list {
    uint64_t key[LISTED_MOST], other[LISTED_MOST]; // a row, and which token it is of
    int32_t words[3 * LISTED_MOST + 1];            // what the kernel takes
};

/* By row; tokens of a row stay in order. */
static void sort_keys(struct row_list *list, int64_t n)
{
    enum { BITS = 8, BUCKETS = 1 << BITS };
    uint64_t *from = list->key, *to = list->other;
    for (int shift = 32; shift < 64; shift += BITS) {
        int64_t start[BUCKETS + 1] = {0};
        for (int64_t i = 0; i < n; i++)
            start[(from[i] >> shift) % BUCKETS + 1]++;
        for (int b = 0; b < BUCKETS; b++)
            start[b + 1] += start[b];
        for (int64_t i = 0; i < n; i++)
            to[start[(from[i] >> shift) % BUCKETS]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
}

/* List tokens by row and add their rows of dx (from the first one on) to dw. Negative
 * rows are not here. */
static void add_by_rows(struct stream *s, struct row_list *list, float *dw,
                        const void *dx, const int32_t *row, int64_t n_tokens, int64_t H)
{
    int64_t n = 0, n_rows = 0;
    int32_t *rows = list->words, *starts, *order;
    for (int64_t i = 0; i < n_tokens; i++)
        if (row[i] >= 0)
            list->key[n++] = (uint64_t)row[i] << 32 | (uint64_t)i;
    sort_keys(list, n);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || list->key[i] >> 32 != list->key[i - 1] >> 32)
            rows[n_rows++] = (int32_t)(list->key[i] >> 32);
    starts = rows + n_rows;
    order = starts + n_rows + 1;
    n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || list->key[i] >> 32 != list->key[i - 1] >> 32)
            starts[n_rows++] = (int32_t)i;
        order[i] = (int32_t)(list->key[i] & UINT32_MAX);
    }
    if (n_rows == 0)
        return;
    starts[n_rows] = (int32_t)n;
    const int32_t *words =
        gpu_upload(s, list->words, (size_t)(2 * n_rows + 1 + n) * sizeof *words);
    struct gpu_embed_bwd a = {.dw = dw,
                              .dx = dx,
                              .rows = words,
                              .starts = words + n_rows,
                              .order = words + 2 * n_rows + 1,
                              .n_rows = n_rows,
                              .H = H};
    struct gpu_grid grid = gpu_grid_rows(n_rows, gpu_parts(H, RUN), THREADS_MOST);
    gpu_table_launch(s, embed_bwd[s->dev->dtype], "embedding_bwd", &grid, &a, sizeof a);
}

void gpu_table_embedding_bwd(struct stream *s, const struct embedding_bwd *e)
{
    struct row_list list;
    int64_t N = e->B * e->S;
    size_t row_bytes = (size_t)e->H * dtype_bytes(s->dev->dtype);
    for (int64_t first = 0; first < N; first += LISTED_MOST) {
        int64_t n = i64_min(LISTED_MOST, N - first);
        const void *dx = (const char *)e->dx + (size_t)first * row_bytes;
        add_by_rows(s, &list, e->dwte, dx, e->tokens + first, n, e->H);
        add_by_rows(s, &list, e->dwpe, dx, e->positions + first, n, e->H);
    }
}
