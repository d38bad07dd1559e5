/*
 * param_table - every parameter of a GPT, one row each, said once.
 *
 * Initialisation, memory, gradients, the optimizer and checkpoints are all driven by
 * these rows. The rows are in the order of the flat buffers: embedding, blocks, final
 * norm; a layer is one contiguous segment. Every parameter starts at a multiple of
 * PARAM_ALIGN elements; the gaps are zero and stay zero.
 *
 * Weights are (out, in), row-major. The fused qkv weight is logically
 * [3, heads, head_dim, hidden].
 */
#ifndef MODEL_PARAM_TABLE_H
#define MODEL_PARAM_TABLE_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"

#define PARAM_ALIGN 16 // elements; 64 bytes of float32
#define PARAM_MAX_DIMS 4
#define PARAM_NAME_BYTES 64
#define PARAM_MAX_CHUNKS 64

enum param_init { INIT_NORMAL, INIT_ZEROS, INIT_ONES };

/* The parameters of one layer, or their gradients; a layer leaves NULL what it lacks. */
struct layer_params {
    float *wte;             // (V, H)
    float *wpe;             // (P, H)
    float *ln1_g, *ln1_b;   // (H)
    float *qkv_w, *qkv_b;   // (3, A, D, H), (3, A, D)
    float *proj_w, *proj_b; // (H, A, D), (H)
    float *ln2_g, *ln2_b;   // (H)
    float *fc_w, *fc_b;     // (F, H), (F)
    float *fc2_w, *fc2_b;   // (H, F), (H)
    float *lnf_g, *lnf_b;   // (H)
};

/* The part of a model that one process holds: whole blocks, and of those that mp splits
 * its share of heads, inner units or vocabulary. */
struct param_part {
    int mp, mp_rank;
    bool has_embedding; // word and position embedding
    bool has_head;      // final norm, and the word embedding as the head's matrix
    int n_chunks;
    struct {
        int64_t first, end; // blocks first <= i < end, from 0; chunks in order
    } chunks[PARAM_MAX_CHUNKS];
};

struct param {
    char name[PARAM_NAME_BYTES]; // as in checkpoints, e.g. "layers.3.attn.qkv.weight"
    int n_dims;
    int64_t shape[PARAM_MAX_DIMS]; // of this process's part
    int split_dim;                 // the dim that mp splits, or -1
    int64_t split_first;           // where this part begins in that dim,
    int64_t split_full;            // and that dim's size in the whole model
    int64_t number;                // row in the table of the whole model
    bool is_counted;               // in the norm: by one of the processes that hold it
    enum param_init init;
    bool has_decay; // matrices and embeddings decay; biases and norms do not
    int layer;      // 0 embedding, 1..L blocks, L+1 final norm
    size_t member;  // where struct layer_params points to it
    int64_t n_elements;
    int64_t offset; // elements from the start of the flat buffer
};

struct param_table {
    struct param *params; // n_params rows, owned
    int64_t n_params;
    int64_t n_params_whole; // rows of the whole model
    int64_t n_elements;     // of all parameters here, without gaps
    int64_t n_flat;         // elements of the flat buffer, gaps included
};

/* All of a model of L blocks. */
struct param_part param_part_whole(int64_t L);

/* The share [*first, *first + n) of `full` things that mp_rank of mp has; n is returned.
 * Shares differ by one at most. */
int64_t param_share(int64_t full, int mp, int mp_rank, int64_t *first);

MUST_CHECK int param_table_init(struct param_table *table, const struct config_model *m,
                                struct error *err);
MUST_CHECK int param_table_init_part(struct param_table *table,
                                     const struct config_model *m,
                                     const struct param_part *part, struct error *err);
void param_table_release(struct param_table *table);

/* Point layers[0 .. L+1] at the parameters of the flat buffer `flat`. */
void param_table_bind(const struct param_table *table, float *flat,
                      struct layer_params *layers);

/* The contiguous elements [*first, *end) of the flat buffer that hold `layer`; empty when
 * this part has none of it. */
void param_table_layer(const struct param_table *table, int layer, int64_t *first,
                       int64_t *end);

/* A part of a row is n_runs runs of run_length elements; run i begins at element i *
 * run_length here and at element first + i * run_stride of the whole parameter. */
struct param_runs {
    int64_t n_runs, run_length, first, run_stride;
};
struct param_runs param_runs(const struct param *row);

/* The row called `name`, or NULL. */
const struct param *param_table_find(const struct param_table *table, const char *name);

#endif
