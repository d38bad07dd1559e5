/*
 * param_table - every parameter of a GPT, one row each, said once.
 *
 * Initialisation, memory, gradients, sharding, the optimizer and checkpoints are all
 * driven by these rows. The rows are in the order of the flat buffers: embedding, blocks,
 * final norm; a layer is one contiguous segment, its vectors (norms, biases) before its
 * matrices. Every parameter starts at a multiple of PARAM_ALIGN elements; the gaps are
 * zero and stay zero.
 *
 * Elements are counted the same way whatever they are stored as. Parameters and gradients
 * have a storage each (enum param_store), in which a row has a type and a place in bytes:
 * vectors are always float32, and so are the gradients of the embeddings, which are sums
 * over many tokens; matrices have the type that was asked for.
 *
 * Weights are (out, in), row-major. The fused qkv weight is logically
 * [3, heads, head_dim, hidden].
 */
#ifndef PARAMS_PARAM_TABLE_H
#define PARAMS_PARAM_TABLE_H

#include "base/base.h"
#include "base/dtype.h"
#include "base/error.h"
#include "config/config.h"

#define PARAM_ALIGN 32 // elements; 64 bytes of the smallest type
#define PARAM_MAX_DIMS 4
#define PARAM_NAME_BYTES 64
#define PARAM_MAX_CHUNKS 64

/* What a parameter is. Files of other programs give a vector one dim, the others two. */
enum param_role {
    PARAM_MATRIX,
    PARAM_VECTOR, // whatever its logical shape
    PARAM_ROWS,   // a table of which a token takes one row
};

/* What it is stored as. */
enum param_storage {
    STORED_TYPED, // the type that the model computes with
    STORED_F32,
};

/* How a step's gradient comes about; all but the first kind are float32. */
enum param_grad {
    GRAD_OVERWRITTEN, // by the first micro-batch: before it the memory holds nothing
    GRAD_ACCUMULATED, // added to by every kernel: begins as zero
    GRAD_BY_ROWS,     // row by row, and complete only after the last micro-batch
};

enum param_init { INIT_NORMAL, INIT_ZEROS, INIT_ONES };

enum param_store { STORE_PARAMS, STORE_GRADS, N_STORES };

/* The parameters of one layer, or their gradients; a layer leaves NULL what it lacks.
 * Matrices have the type of their row in the store they were bound to. */
struct layer_params {
    void *wte;            // (V, H)
    void *wpe;            // (P, H)
    float *ln1_g, *ln1_b; // (H)
    void *qkv_w;          // (3, A, D, H)
    float *qkv_b;         // (3, A, D)
    void *proj_w;         // (H, A, D)
    float *proj_b;        // (H)
    float *ln2_g, *ln2_b; // (H)
    void *fc_w;           // (F, H)
    float *fc_b;          // (F)
    void *fc2_w;          // (H, F)
    float *fc2_b;         // (H)
    float *lnf_g, *lnf_b; // (H)
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
    double init_scale; // of the deviation of INIT_NORMAL
    enum param_role role;
    enum param_storage storage;
    enum param_grad grad;
    bool decays;     // by the optimizer's weight decay
    double lr_scale; // of the optimizer's learning rate
    int layer;       // 0 embedding, 1..L blocks, L+1 final norm
    size_t member;   // where struct layer_params points to it
    int64_t n_elements;
    int64_t offset; // elements from the start of the flat buffer
    struct {
        enum dtype dtype;
        int64_t at; // bytes from the start of the storage
    } in[N_STORES];
};

struct param_table {
    struct param *params; // n_params rows, owned
    int64_t n_params;
    int64_t n_params_whole; // rows of the whole model
    int64_t n_elements;     // of all parameters here, without gaps
    int64_t n_flat;         // elements of the flat buffer, gaps included
    int64_t n_bytes[N_STORES];
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

/* Give matrices these types; all rows are float32 before. */
void param_table_set_types(struct param_table *table, enum dtype params,
                           enum dtype grads);

/* Point layers[0 .. L+1] at the storage `base`. */
void param_table_bind(const struct param_table *table, enum param_store store, void *base,
                      struct layer_params *layers);
/* Point layers[layer] at `base`, where that layer's storage begins. */
void param_table_bind_layer(const struct param_table *table, enum param_store store,
                            int layer, void *base, struct layer_params *layers);

/* The rows [*first, *end) of `layer`; none when this part has none of it. */
void param_table_rows(const struct param_table *table, int layer, int64_t *first,
                      int64_t *end);
/* The contiguous elements [*first, *end) of the flat buffer that hold `layer`; empty when
 * this part has none of it. */
void param_table_layer(const struct param_table *table, int layer, int64_t *first,
                       int64_t *end);

/* Where element `flat` of the flat buffer lies in a storage, in bytes; n_flat gives the
 * storage's end. An element of a gap counts as the row's before it. */
int64_t param_table_byte(const struct param_table *table, enum param_store store,
                         int64_t flat);

/* x[0, n) := the initial values of elements [first, first + n) of the row. */
void param_init_values(const struct param *row, int64_t first, int64_t n, uint64_t seed,
                       double std, float *x);

/* A part of a row is n_runs runs of run_length elements; run i begins at element i *
 * run_length here and at element first + i * run_stride of the whole parameter. */
struct param_runs {
    int64_t n_runs, run_length, first, run_stride;
};
struct param_runs param_runs(const struct param *row);

/* The row called `name`, or NULL. */
const struct param *param_table_find(const struct param_table *table, const char *name);

#endif
